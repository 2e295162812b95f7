"""Receipts are in the order of the lives of their id, even if an erasing transaction began long before."""

import asyncio

import psycopg
import pytest
from tests.support.batches import Log, project, value_of

from frameledger.frames import LLMContextEraseFrame, LLMRunFrame, encode_frame
from frameledger.heads_file import Erased, Living
from frameledger_services.audit import against, heads
from frameledger_services.audit.verify import Verified
from frameledger_services.audit.verify_many import verify_many
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import contexts, erasures, leaves, leftovers
from frameledger_services.store.contexts import ContextErasedError

SAYS = encode_frame(LLMRunFrame())
ERASES = encode_frame(LLMContextEraseFrame(why="asked"))


class Talk:
    """A conversation, frame by frame."""

    def __init__(self, address):
        self.address = address
        self.log = Log()
        self.second: list[Living | Erased] = []
        """The leaves of a root that was computed in its second life."""

    def add(self, *values):
        for value in values:
            self.log.add("ctx", value)
        project(self.address, self.log.records[-len(values) :])


def read(address, function, *arguments):
    async def run():
        async with await psycopg.AsyncConnection.connect(address) as connection:
            return await function(connection, *arguments)

    return asyncio.run(run())


async def all_leaves(connection: Connection):
    return [(one.version, bytes(one.chain)) async for one in leaves.receipts(connection)]


def written_down(address):
    """Returns the leaves of a root, in their order."""
    found: list[Living | Erased] = []

    async def run():
        async with heads.snapshot(Settings(database_url=address), "test") as connection:
            await heads.compute(connection, found.append)

    asyncio.run(run())
    return found


def became_of(address, written):
    async def run():
        async with heads.snapshot(Settings(database_url=address), "test") as connection:
            return [(one.what, one.version) async for one in against.compare(connection, written)]

    return asyncio.run(run())


def verified(address):
    found: list[Verified] = []
    asyncio.run(verify_many(Settings(database_url=address), None, found.append, jobs=1, again=True))
    return [(one.begins, one.version, one.differences.in_order()) for one in found]


@pytest.fixture
def talk(database):
    """Three lives: the third begins after an erasure by a transaction that had begun before that of the first."""
    talk = Talk(database)
    talk.add(SAYS)
    with psycopg.connect(database) as slow:
        slow.execute("SELECT FROM contexts")
        talk.add(ERASES, SAYS, SAYS)
        talk.second = written_down(database)
        slow.execute("SELECT erase('ctx', 'asked again')")
    with psycopg.connect(database) as connection:
        in_order = value_of(connection, "SELECT array_agg(version ORDER BY erased_at) FROM erasures")
        assert in_order == [4, 2]
    return talk


@pytest.mark.regression("fault 99")
def test_a_life_goes_on_from_the_highest_version_that_was_given_out(talk):
    with pytest.raises(ContextErasedError, match="erased at version 4"):
        read(talk.address, contexts.context, "ctx")
    assert [one.version for one in read(talk.address, erasures.receipts, "ctx")] == [4, 2]
    assert [one.version for one in read(talk.address, leftovers.receipts, ["ctx"])] == [4]
    talk.add(SAYS)
    assert read(talk.address, erasures.beginnings, ["ctx"])["ctx"].version == 4
    assert verified(talk.address) == [(4, 5, [])]
    with psycopg.connect(talk.address) as connection:
        assert value_of(connection, "SELECT intact FROM verify_chain('ctx')") is True


@pytest.mark.regression("fault 99")
def test_an_older_root_calls_an_erased_life_erased(talk):
    assert became_of(talk.address, talk.second) == [("erased", 4)]
    talk.add(SAYS)
    assert became_of(talk.address, talk.second) == [("erased", 4)]


@pytest.mark.regression("fault 99")
def test_receipts_from_before_lives_went_on_keep_the_order_of_their_clocks(talk):
    """After each of them the versions of the id started again at 1."""
    with psycopg.connect(talk.address) as connection:
        connection.execute(
            "INSERT INTO erasures (context_id, version, erased_at, frame_count, why, chain) VALUES "
            "('ctx', 9, '2025-01-01', 9, 'old', sha256('9')), ('ctx', 3, '2025-01-02', 3, 'old', sha256('3'))"
        )
    assert [version for version, _ in read(talk.address, all_leaves)] == [9, 3, 2, 4]
    assert [one.version for one in read(talk.address, erasures.receipts, "ctx")] == [4, 2, 3, 9]
    talk.add(SAYS)
    assert verified(talk.address) == [(4, 5, [])]

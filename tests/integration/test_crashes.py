"""Crashes are counted only where a record may have caused them; no number of other crashes parks a conversation."""

import asyncio
import signal
from contextlib import asynccontextmanager

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from tests.integration.test_database_crash import server  # noqa: F401  # a fixture
from tests.support.batches import TOPIC, Log, Projecting, value_of
from tests.support.killable import Plan, projector
from tests.support.pipeline import (  # noqa: F401  # a fixture
    PARTITIONS,
    Raw,
    histories,
    own_pipeline,
    until_session_gone,
)
from tests.support.tiers import long

from frameledger.partition import partition_for
from frameledger_services.projector.crashes import Crashes, PoisonError, end_in_order
from frameledger_services.store import checkpoints, projections
from frameledger_services.store.projections import Progress

RUN = b'{"type":"LLMRunFrame"}'
LIVES = 7


class Owner:
    """A process that owns partition 0, over a session of its own."""

    def __init__(self, address, name):
        self.address = address
        self.name = name
        self.is_gone = False

    async def __aenter__(self):
        self.session = await self._connect()
        self.pid = self.session.info.backend_pid
        return self

    async def __aexit__(self, *_):
        await self.session.close()

    async def _connect(self):
        return await psycopg.AsyncConnection.connect(self.address, autocommit=True)

    async def take(self, *, ended=False):
        self.taken = await projections.assign(self.session, TOPIC, 0, self.name, ended=ended)
        return Crashes(self.taken.crashes, self.taken.crashes_alone)

    async def begin(self, attempt="batch"):
        await projections.note_attempt(self.session, TOPIC, attempt, {0: self.taken.epoch})

    async def move(self):
        at = self.taken.next_offset
        assert await checkpoints.advance(
            self.session, TOPIC, [Progress(0, self.taken.epoch, at, at + 1, None)]
        ) == {0}

    async def end_in_order(self, session=None):
        await end_in_order(session or self.session, TOPIC, self.name, self._connect)

    async def go(self):
        await self.session.close()
        await asyncio.to_thread(until_session_gone, self.address, self.pid)


@asynccontextmanager
async def two_owners(database):
    async with Owner(database, "first") as first, Owner(database, "second") as second:
        await first.take()
        yield first, second


async def begun_nothing(first, second):
    await first.go()


async def ended_while_it_had_begun_a_batch(first, second):
    await first.begin()
    await first.go()


async def ended_while_it_had_begun_a_record(first, second):
    await first.begin("record")
    await first.go()


async def moved_on(first, second):
    await first.begin("record")
    await first.move()
    await first.go()


async def ended_in_order(first, second):
    await first.begin()
    await first.end_in_order()
    await first.go()


async def ended_in_order_without_its_session(first, second):
    await first.begin()
    await first.go()
    await first.end_in_order()


async def still_there(first, second):
    await first.begin("record")


async def the_same_process(first, second):
    await first.begin("record")
    await first.go()
    second.name = first.name


async def fenced_before_it_began(first, second):
    async with Owner(first.address, "third") as third:
        await third.take()
        await first.begin("record")
        await third.go()
        await first.go()


async def hidden_from_another_user(first, second):
    await first.begin("record")
    await second.session.execute("SET ROLE frameledger_projector")


@pytest.mark.regression("fault 7")
@pytest.mark.parametrize(
    ("ending", "counted"),
    [
        (begun_nothing, Crashes(0, 0)),
        (ended_while_it_had_begun_a_batch, Crashes(1, 0)),
        (ended_while_it_had_begun_a_record, Crashes(1, 1)),
        (moved_on, Crashes(0, 0)),
        (ended_in_order, Crashes(0, 0)),
        (ended_in_order_without_its_session, Crashes(0, 0)),
        (still_there, Crashes(0, 0)),
        (the_same_process, Crashes(0, 0)),
        (fenced_before_it_began, Crashes(0, 0)),
        (hidden_from_another_user, Crashes(0, 0)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_an_end_is_counted_where_a_record_may_have_caused_it(database, ending, counted):
    async def run():
        async with two_owners(database) as (first, second):
            await ending(first, second)
            assert await second.take() == counted

    asyncio.run(run())


@pytest.mark.regression("fault 7")
def test_an_owner_whose_session_had_to_be_ended_is_not_counted(database):
    async def run():
        async with two_owners(database) as (first, second):
            await first.begin("record")
            assert await projections.terminate_owner(second.session, TOPIC, 0)
            await asyncio.to_thread(until_session_gone, database, first.pid)
            assert await second.take(ended=True) == Crashes()

    asyncio.run(run())


@pytest.mark.regression("fault 7")
def test_what_is_counted_stays_until_the_partition_moves(database):
    async def run():
        for attempt, counted in [("batch", (1, 0)), ("record", (2, 1)), ("record", (3, 2))]:
            async with Owner(database, f"before {counted}") as one, Owner(database, "next") as following:
                await one.take()
                await one.begin(attempt)
                await one.go()
                assert await following.take() == Crashes(*counted)
                await following.begin("record")
                await following.end_in_order()
        async with Owner(database, "last") as last:
            assert await last.take() == Crashes(3, 2)
            await last.move()
            assert await last.take() == Crashes()

    asyncio.run(run())


@pytest.mark.regression("fault 7")
@pytest.mark.parametrize("whole", [True, long(False)], ids=["the server", "one of its processes"])
def test_a_database_that_dies_six_times_is_no_crash_of_a_projector(server, whole):  # noqa: F811
    async def life(number):
        owner = Owner(server.address, f"life {number}")
        async with owner:
            counted = await owner.take()
            await owner.begin("record")
            # Blocking, in this thread: the server ends with the thread that started it.
            if whole:
                server.crash()
            else:
                server.crash_one_process(owner.pid)
        return counted

    assert [asyncio.run(life(number)) for number in range(6)] == [Crashes()] * 6


REVOKED = (
    "REVOKE INSERT ON frames FROM frameledger_projector",
    "GRANT INSERT ON frames TO frameledger_projector",
)
ANOTHER_LOG = (
    "UPDATE projections SET last_hash = last_hash || '\\x00' WHERE partition = 0",
    "UPDATE projections SET last_hash = substring(last_hash FOR 32) WHERE partition = 0",
)


@pytest.fixture
def limited_user(database):
    """A user of the database with the rights of a projector, and with its name for its password."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE ROLE projecting LOGIN PASSWORD 'projecting' IN ROLE frameledger_projector")
        yield "projecting"
        connection.execute("DROP ROLE projecting")


@pytest.mark.regression("fault 7")
@pytest.mark.parametrize(
    "broken",
    [REVOKED, long(ANOTHER_LOG)],
    ids=["a right", "the wrong log"],
)
def test_lives_that_ended_for_another_reason_park_nobody(pipeline, limited_user, broken):
    breaking, mending = broken
    keys = [b"ctx-%d" % number for number in range(8)]
    assert {partition_for(key, PARTITIONS) for key in keys} == set(range(PARTITIONS))
    superuser = pipeline.address
    limited = pipeline.settings.model_copy(
        update={"database_url": SecretStr(make_conninfo(superuser, user=limited_user, password=limited_user))}
    )
    with projector(limited, Plan(member="it")) as running:
        pipeline.publish([Raw(key, RUN) for key in keys])
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.publish([Raw(key, RUN) for key in keys])
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(breaking)
        for _ in range(LIVES):
            with projector(limited, Plan(member="it")) as running:
                assert running.ended() == 1
        connection.execute(mending)
        with projector(limited, Plan(member="it")) as running:
            pipeline.until_idle(running)
            assert running.stop() == 0
        assert value_of(connection, "SELECT count(*) FROM contexts WHERE parked_version IS NOT NULL") == 0
        assert value_of(connection, "SELECT count(*) FROM frames WHERE outcome <> 'parked'") == 2 * len(keys)


@pytest.mark.regression("fault 8")
@pytest.mark.parametrize(
    "record",
    [
        Raw(b"deadly", b"no frame"),
        Raw(b"", RUN),
        Raw(b"deadly", RUN, partition=(partition_for(b"deadly", PARTITIONS) + 1) % PARTITIONS),
    ],
    ids=["no frame", "no key", "a foreign partition"],
)
def test_what_is_no_frame_of_a_conversation_here_is_set_aside_and_parks_nobody(database, record):
    log = Log()
    home = partition_for(record.key, PARTITIONS) if record.partition is None else record.partition
    log.add(record.key, record.value, partition=home)

    async def run():
        async with Projecting(database) as projecting:
            await projecting.batches.park(log.records[0], projecting.owned, PoisonError(Crashes(5, 2)))
            log.add("deadly", RUN)
            await projecting.store(log.records[1:])

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        (rejected,) = connection.execute("SELECT code, error FROM rejected_frames").fetchall()
        assert rejected[0] == "refused"
        assert "5 projectors crashed" in rejected[1]
        assert connection.execute("SELECT outcome FROM frames").fetchall() == [("applied",)]


@pytest.mark.long
@pytest.mark.regression("fault 8")
def test_what_crashes_even_who_only_decodes_it_is_set_aside_undecoded(pipeline):
    records = histories("good", ["barge-in", "parallel-tools"])
    records[5:5] = [Raw(b"bad", b'{"type":"LLMTextFrame","text":"deadly"}'), Raw(b"bad", RUN)]
    pipeline.publish(records)
    plan = Plan(deadly="deadly", decoding=True, member="it")
    for _ in range(12):
        with projector(pipeline.settings, plan) as running:
            if not pipeline.until_idle_or_dead(running):
                break
            assert running.ended() == -signal.SIGKILL
    else:
        raise AssertionError("the twelfth projector died of it too")
    with psycopg.connect(pipeline.address) as connection:
        assert connection.execute("SELECT code, context_id FROM rejected_frames").fetchall() == [
            ("refused", "bad")
        ]
        # Its conversation goes on.
        assert value_of(connection, "SELECT outcome FROM frames WHERE context_id = 'bad'") == "applied"
        assert value_of(connection, "SELECT count(*) FROM frames WHERE outcome = 'parked'") == 0

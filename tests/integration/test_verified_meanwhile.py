"""`verify` stores nothing about a life of a conversation that is erased at that moment."""

import asyncio

import psycopg
import pytest
from psycopg import AsyncConnection
from tests.support import erasing
from tests.support.batches import Log, Projecting, value_of
from tests.support.databases import until_somebody_waits

from frameledger.frames import (
    LLMContextEraseFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    encode_frame,
)
from frameledger_services.audit.verify import Verified, verify
from frameledger_services.audit.verify_many import connected, verify_many
from frameledger_services.projector.batches import Batches
from frameledger_services.projector.commits import Commits
from frameledger_services.settings import Settings
from frameledger_services.store import verified

SECRET = "a secret"
BEGINS = UserStartedSpeakingFrame()
SAYS = TranscriptionFrame(text=SECRET, user_id="u", timestamp="t")
ERASES = LLMContextEraseFrame(why="asked")


def logged(*frames):
    log = Log()
    for frame in frames:
        log.add("ctx", encode_frame(frame))
    return log.records


async def found_by_verify(address):
    found: list[Verified] = []
    await verify_many(Settings(database_url=address), None, found.append, jobs=1, again=False)
    [one] = found
    return one


async def to_be_remembered(connection):
    [one] = await verify(connection, ["ctx"])
    assert one.remembered is not None
    return one.remembered


def paused_before_commit(projecting):
    """Makes a projector's next batch wait before its commit. Returns what is set there, and what it waits for."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def failpoint(point):
        if point == "before commit":
            reached.set()
            await go_on.wait()

    commits = Commits(projecting.connection, projecting.topics, projecting.cache, failpoint)
    projecting.batches = Batches(commits)
    return reached, go_on


@pytest.mark.regression("fault 98")
def test_what_is_erased_while_it_is_remembered_stays_erased(database):
    records = logged(BEGINS, BEGINS, SAYS, ERASES, BEGINS, BEGINS)

    async def run():
        async with (
            Projecting(database) as projecting,
            connected(Settings(database_url=database)) as verifier,
        ):
            await projecting.store(records[:1])
            # It stores a row, on which the next one waits.
            await found_by_verify(database)
            await projecting.store(records[1:3])
            before = await to_be_remembered(verifier)
            reached, go_on = paused_before_commit(projecting)
            batch = asyncio.create_task(projecting.store(records[3:]))
            await reached.wait()
            remembering = asyncio.create_task(verified.store(verifier, [before]))
            await until_somebody_waits(database)
            go_on.set()
            await batch
            await remembering

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, SECRET) == []
        assert value_of(connection, "SELECT count(*) FROM verified") == 0
    one = asyncio.run(found_by_verify(database))
    assert one.differences.in_order() == []
    assert (one.frames, one.frames_before) == (2, 0)


@pytest.mark.regression("fault 98")
def test_what_an_older_release_remembered_of_an_erased_life_is_not_gone_on_from(database):
    records = logged(BEGINS, SAYS, ERASES, BEGINS)

    async def run():
        async with (
            Projecting(database) as projecting,
            connected(Settings(database_url=database)) as verifier,
        ):
            await projecting.store(records[:2])
            old = await to_be_remembered(verifier)
            await projecting.store(records[2:])
            await verifier.execute(
                "INSERT INTO verified (context_id, version, chain, fold_version, head, state) "
                "VALUES (%s, %s, %s, %s, %s, %s)",
                (old.context_id, old.version, old.chain, old.fold_version, old.head, old.state),
            )

    asyncio.run(run())
    one = asyncio.run(found_by_verify(database))
    assert one.differences.in_order() == []
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, SECRET) == []


@pytest.mark.regression("fault 98")
def test_a_batch_that_erases_what_is_being_remembered_waits_for_it(database):
    """If the batch deleted what was remembered before it locked the head, it and `verify` would wait for each other."""
    records = logged(BEGINS, SAYS, ERASES, BEGINS)

    async def run():
        async with (
            Projecting(database) as projecting,
            connected(Settings(database_url=database)) as reader,
            await AsyncConnection.connect(database, autocommit=True) as verifier,
        ):
            await projecting.store(records[:1])
            await found_by_verify(database)
            await projecting.store(records[1:2])
            before = await to_be_remembered(reader)
            async with verifier.transaction():
                await verifier.execute("SELECT FROM contexts FOR KEY SHARE")
                batch = asyncio.create_task(projecting.store(records[2:]))
                await until_somebody_waits(database)
                await verified.store(verifier, [before])
            await batch

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert erasing.found_in_tables(connection, SECRET) == []
    assert asyncio.run(found_by_verify(database)).differences.in_order() == []

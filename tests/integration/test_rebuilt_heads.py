"""A conversation is rebuilt while a projector has it in memory: the projector loads it again and continues."""

import asyncio

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.batches import (
    Log,
    Projecting,
    both_writers,  # noqa: F401  # a fixture
    value_of,
)

from frameledger import stored
from frameledger.frames import LLMMessagesAppendFrame, encode_frame
from frameledger_services.projector.stored_heads import NewerHeadError


def said(*contexts):
    """The records of frames that append a message each, to these conversations in turn."""
    log = Log()
    for number, context_id in enumerate(contexts):
        frame = LLMMessagesAppendFrame(messages=[{"role": "user", "content": f"message {number}"}])
        log.add(context_id, encode_frame(frame))
    return log.records


REBUILT = "UPDATE contexts SET rebuilt = rebuilt + 1 WHERE context_id = 'ctx'"


@pytest.mark.usefixtures("both_writers")
def test_a_rebuilt_conversation_is_loaded_again_and_no_partition_is_lost(database):
    records = said("ctx", "other", "ctx", "other", "ctx", "ctx")

    async def run():
        async with Projecting(database) as projecting:
            await projecting.store(records[:2])
            epochs = {one.partition: one.epoch for one in projecting.owned.values()}
            remembered = projecting.cache.get("ctx")
            with psycopg.connect(database) as operator:
                operator.execute(REBUILT)
            await projecting.store(records[2:4])
            await projecting.store(records[4:])
            assert projecting.cache.get("ctx") is not remembered
            with psycopg.connect(database) as connection:
                assert dict(connection.execute("SELECT partition, epoch FROM projections")) == epochs

    asyncio.run(run())
    check(database, {"ctx": (4, 1), "other": (2, 0)})


@pytest.mark.usefixtures("both_writers")
def test_a_batch_waits_for_the_rebuild_of_its_conversation_and_is_folded_again(database):
    records = said("ctx", "other", "ctx", "other")

    async def run():
        async with (
            Projecting(database) as projecting,
            await psycopg.AsyncConnection.connect(database) as operator,
        ):
            await projecting.store(records[:2])
            await operator.execute(REBUILT)
            waiting = asyncio.create_task(projecting.store(records[2:]))
            async with asyncio.timeout(ON_SERVERS):
                while not await waits(database):
                    assert not waiting.done()
            await operator.commit()
            await waiting

    asyncio.run(run())
    check(database, {"ctx": (2, 1), "other": (2, 0)})


async def waits(database):
    """Whether a session waits for another."""
    async with await psycopg.AsyncConnection.connect(database) as connection:
        found = await connection.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
        return (await found.fetchone())[0]


def check(database, expected):
    with psycopg.connect(database) as connection:
        heads = connection.execute("SELECT context_id, version, rebuilt FROM contexts").fetchall()
        assert {context_id: (version, rebuilt) for context_id, version, rebuilt in heads} == expected
        for context_id, (version, _) in expected.items():
            messages = value_of(connection, "SELECT context_at(%s)", context_id)["messages"]
            assert len(messages) == version
            assert value_of(connection, "SELECT intact FROM verify_chain(%s)", context_id) is True
        assert value_of(connection, "SELECT count(*) FROM frames") == sum(one for one, _ in expected.values())


def test_an_older_release_refuses_a_conversation_that_a_newer_one_folded(database, monkeypatch):
    records = said("ctx", "ctx")

    async def store(some):
        async with Projecting(database) as projecting:
            await projecting.store(some)

    with monkeypatch.context() as newer:
        newer.setattr(stored, "FOLD_VERSION", stored.FOLD_VERSION + 1)
        asyncio.run(store(records[:1]))
    with pytest.raises(NewerHeadError, match="ctx was folded by fold version"):
        asyncio.run(store(records[1:]))
    check(database, {"ctx": (1, 0)})

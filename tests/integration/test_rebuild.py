"""Conversations rebuilt on a real database: afterwards the tables hold what a projector would have written."""

import asyncio

import psycopg
import pytest
from tests.support.batches import (
    HISTORIES,
    TOPIC,
    TOPICS,
    Log,
    Projecting,
    dump,
    histories_interleaved,
    project,
    same,
)
from tests.support.unparking import operator

from frameledger.frames import LLMMessagesAppendFrame, encode_frame
from frameledger.ids import ContextId
from frameledger_services.projector.rebuild import DamagedFramesError, rebuild
from frameledger_services.store import frame_pages

EVERYTHING = [path.stem for path in HISTORIES]


def rebuilt(address, *context_ids):
    async def run():
        async with operator(address) as connection:
            return [
                await rebuild(connection, TOPIC, TOPICS.effects, ContextId(one), "a test")
                for one in context_ids
            ]

    return asyncio.run(run())


@pytest.mark.parametrize("page", [7, 500])
def test_a_rebuilt_conversation_reads_as_the_one_that_was_projected(database, monkeypatch, page):
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    project(database, histories_interleaved())
    before = dump(database)
    for one in rebuilt(database, *EVERYTHING):
        assert (one.settled, one.newly_open, one.over, one.outbox) == (0, [], [], [])
    same(dump(database), before)


TAMPERED = {
    "messages": 'UPDATE messages SET text = \'x\', message = \'{"role": "user", "content": "x"}\'',
    "more messages": "DELETE FROM messages WHERE position % 2 = 0",
    "eras": "DELETE FROM eras",
    "settings": "UPDATE context_settings SET value = '1'",
    "runs": "UPDATE runs SET status = 'ended', model = 'another'",
    "calls": "DELETE FROM tool_calls",
    "counters": "UPDATE contexts SET message_count = 77, era = 9, open_run_id = NULL",
    "state": """UPDATE contexts SET state = '{"fold": 1, "state": {}}'""",
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_rebuild_restores_what_was_changed_by_hand(database, what):
    project(database, histories_interleaved())
    before = dump(database)
    with psycopg.connect(database) as connection:
        connection.execute(TAMPERED[what])
    assert dump(database) != before or what == "state"
    rebuilt(database, *EVERYTHING)
    same(dump(database), before)


def test_after_a_rebuild_a_conversation_goes_on_as_if_there_had_been_none(
    database, make_database, migrated_template
):
    untouched = make_database(template=migrated_template)
    records = histories_interleaved()
    project(untouched, records)
    third = len(records) // 3

    async def run():
        async with Projecting(database) as projecting, operator(database) as connection:
            await projecting.store(records[:third])
            for one in EVERYTHING:
                await rebuild(connection, TOPIC, TOPICS.effects, ContextId(one), "a test")
            await projecting.store(records[third:])

    asyncio.run(run())
    same(dump(database), dump(untouched))


def test_damaged_frames_are_no_ground_to_rebuild_on(database):
    log = Log()
    for text in ("one", "two", "three"):
        log.add("ctx", encode_frame(LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}])))
    project(database, log.records)
    before = dump(database)["messages"]
    with psycopg.connect(database) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE frames SET payload = replace(payload::text, 'two', 'six')::json WHERE version = 2"
        )
    with pytest.raises(DamagedFramesError, match="at version 2"):
        rebuilt(database, "ctx")
    assert dump(database)["messages"] == before

"""Conversations rebuilt on a real database: afterwards the tables have what a projector would have written."""

import asyncio

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
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
from tests.support.tiers import long
from tests.support.unparking import operator

from frameledger.frames import LLMContextEraseFrame, LLMMessagesAppendFrame, encode_frame
from frameledger.ids import ContextId
from frameledger_services import failpoints
from frameledger_services.projector.rebuild import rebuild
from frameledger_services.projector.rebuild_fold import STAGED_ABOVE, DamagedFramesError
from frameledger_services.store import frame_pages

EVERYTHING = [path.stem for path in HISTORIES]


def rebuilt(address, *context_ids, staged_above=STAGED_ABOVE):
    async def run():
        async with operator(address) as connection:
            return [
                await rebuild(
                    connection, TOPIC, TOPICS.effects, ContextId(one), "a test", staged_above=staged_above
                )
                for one in context_ids
            ]

    return asyncio.run(run())


@pytest.mark.parametrize(("page", "staged_above"), [(7, STAGED_ABOVE), long(500, STAGED_ABOVE), long(7, 0)])
def test_a_rebuilt_conversation_reads_as_the_one_that_was_projected(
    database, monkeypatch, page, staged_above
):
    monkeypatch.setattr(frame_pages, "PAGE_FRAMES", page)
    project(database, histories_interleaved())
    before = dump(database)
    for one in rebuilt(database, *EVERYTHING, staged_above=staged_above):
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


SOME = ("more messages", "settings", "calls", "state")
CHANGED_ROWS = ("messages", "more messages", "runs")
"""The changes that are also tested where rows are compared one by one instead of all written."""


@pytest.mark.parametrize(
    ("changes", "staged_above"),
    [(SOME, STAGED_ABOVE), long(TAMPERED.keys() - {*SOME}, STAGED_ABOVE), long(CHANGED_ROWS, 0)],
    ids=["all written", "all written anew", "compared"],
)
def test_a_rebuild_restores_what_was_changed_by_hand(database, changes, staged_above):
    project(database, histories_interleaved())
    before = dump(database)
    for what in changes:
        with psycopg.connect(database) as connection:
            connection.execute(TAMPERED[what])
        assert dump(database) != before or what == "state", what
        rebuilt(database, *EVERYTHING, staged_above=staged_above)
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


@pytest.mark.long
@pytest.mark.regression("fault 53")
def test_a_long_conversation_is_folded_before_its_lock_and_its_frames_are_stored_meanwhile(
    database, make_database, migrated_template
):
    """A batch that waited for the lock would delay the other conversations of its partition."""
    untouched = make_database(template=migrated_template)
    records = histories_interleaved()
    project(untouched, records)
    half = len(records) // 2

    async def run():
        async with Projecting(database) as projecting, operator(database) as connection:
            await projecting.store(records[:half])
            await connection.execute(TAMPERED["messages"])
            rows = "SELECT count(*) FROM {} WHERE context_id = 'barge-in'"
            stored: list[int] = []
            folded: list[int] = []

            async def count(table, counts):
                cursor = await connection.execute(rows.format(table))
                counts += await cursor.fetchone()

            async def meanwhile(point):
                if point == "before hold":
                    await count("messages", stored)
                    await projecting.store(records[half:])
                elif point == "after hold":
                    # All frames are folded except those that came meanwhile.
                    await count("staged_messages", folded)

            for one in EVERYTHING:
                waiting = meanwhile if one == "barge-in" else failpoints.none
                await rebuild(
                    connection,
                    TOPIC,
                    TOPICS.effects,
                    ContextId(one),
                    "a test",
                    staged_above=0,
                    failpoint=waiting,
                )
            assert stored == folded != [0]

    asyncio.run(run())
    same(dump(database), dump(untouched))


@pytest.mark.regression("fault 53")
@pytest.mark.parametrize("moment", ["before fold", "before hold"])
def test_what_was_folded_before_the_lock_is_folded_again_if_the_conversation_was_erased_meanwhile(
    database, moment
):
    def said(*texts):
        for text in texts:
            log.add("ctx", encode_frame(LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}])))

    log = Log()
    said("one", "two")
    log.add("ctx", encode_frame(LLMContextEraseFrame(why="asked")))
    said("three")

    async def run():
        async with Projecting(database) as projecting, operator(database) as connection:
            await projecting.store(log.records[:2])

            async def erased(point):
                if point == moment:
                    await projecting.store(log.records[2:])

            await rebuild(
                connection,
                TOPIC,
                TOPICS.effects,
                ContextId("ctx"),
                "a test",
                staged_above=0,
                failpoint=erased,
            )

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT text FROM messages").fetchall() == [("three",)]
        assert connection.execute("SELECT version, rebuilt FROM contexts").fetchall() == [(4, 1)]


@pytest.mark.long
def test_who_may_create_no_temporary_tables_rebuilds_under_the_lock(database):
    project(database, histories_interleaved())
    before = dump(database)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'REVOKE TEMPORARY ON DATABASE "{connection.info.dbname}" FROM PUBLIC')
        connection.execute(TAMPERED["messages"])
    rebuilt(make_conninfo(database, options="-c role=frameledger_operator"), *EVERYTHING, staged_above=0)
    same(dump(database), before)


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

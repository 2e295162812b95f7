"""Duplicate frames are counted and stored once, at any distance and from any publisher; other frames with a used id are
set aside."""

import asyncio
import itertools

import psycopg
import pytest
from tests.support.batches import Log, Projecting, project, value_of
from tests.support.tiers import long

SAID = '{"type":"TranscriptionFrame","id":"%s","user_id":"u","timestamp":"","text":"%s","produced_at":"%s"}'
MORNING, EVENING = "2026-05-01T08:00:00.000000+00:00", "2026-05-01T20:00:00+00:00"


def said(number, text="Hello", at=MORNING):
    return (SAID % (number, text, at)).encode()


def counts(database):
    with psycopg.connect(database) as connection:
        rejected = connection.execute("SELECT code FROM rejected_frames").fetchall()
        frames = value_of(connection, "SELECT count(*) FROM frames")
        return frames, value_of(connection, "SELECT sum(duplicate_count)::int FROM contexts"), rejected


@pytest.mark.regression("fault 12")
@pytest.mark.regression("trial C9")
@pytest.mark.parametrize("size", [long(3_000), 700])
def test_a_backlog_that_was_published_twice_is_counted_twice_and_stored_once(database, size):
    log = Log()
    for number in (*range(1_500), *range(1_500)):
        log.add("ctx", said(number))
    project(database, log.records, sizes=(size,))
    assert counts(database) == (1_500, 1_500, [])


@pytest.mark.regression("fault 12")
def test_repetitions_around_a_record_that_the_database_refuses_are_counted(database):
    log = Log()
    for number in (*range(300), "bad", *range(300), *range(300)):
        log.add("bad" if number == "bad" else "ctx", said(number))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER TABLE runs ADD CONSTRAINT refused CHECK (context_id <> 'bad') NOT VALID")
        connection.execute(
            "ALTER TABLE messages ADD CONSTRAINT refused CHECK (context_id <> 'bad') NOT VALID"
        )
    project(database, log.records, sizes=(len(log.records),))
    assert counts(database) == (301, 600, [])


@pytest.mark.regression("journey 1")
@pytest.mark.parametrize("sizes", [(3,), (1,)], ids=["in one batch", "in three"])
@pytest.mark.parametrize("cache_bytes", [1, 1 << 20], ids=["not in memory", "in memory"])
def test_a_frame_that_is_published_anew_at_another_time_is_the_same_frame(database, sizes, cache_bytes):
    log = Log()
    for at in (MORNING, EVENING, MORNING):
        log.add("ctx", said(1, at=at))
    project(database, log.records, sizes=sizes, cache_bytes=cache_bytes)
    assert counts(database) == (1, 2, [])


@pytest.mark.regression("journey 1")
@pytest.mark.parametrize("at", [MORNING, EVENING])
@pytest.mark.parametrize("cache_bytes", [1, 1 << 20], ids=["not in memory", "in memory"])
def test_another_frame_with_a_used_id_is_set_aside_whenever_it_was_produced(database, at, cache_bytes):
    log = Log()
    log.add("ctx", said(1))
    log.add("ctx", said(1, text="Good bye", at=at))
    project(database, log.records, sizes=(1,), cache_bytes=cache_bytes)
    assert counts(database) == (1, 0, [("id_reused",)])


@pytest.mark.regression("journey 1")
def test_who_publishes_one_frame_again_and_again_keeps_nobody_from_being_stored(database):
    """The repetitions are in one batch with new frames before and after them."""
    log = Log()
    times = itertools.cycle([MORNING, EVENING])
    for number in range(40):
        log.add("ctx", said("webhook", at=next(times)))
        log.add("ctx", said(number))
        log.add(f"other-{number}", said("webhook"))

    async def run():
        async with Projecting(database) as projecting:
            await projecting.store(log.records)

    asyncio.run(run())
    assert counts(database) == (1 + 40 + 40, 39, [])

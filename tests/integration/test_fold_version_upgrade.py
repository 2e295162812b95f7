"""A release with a newer fold reads conversations of the previous one: short ones are rebuilt, long ones continue."""

import asyncio

import psycopg
import pytest
from tests.support.batches import Log, Projecting, value_of
from tests.support.rebuilding import NAMES, rebuild_in
from tests.support.releases import NEWER, newer_release, shouting
from tests.support.unparking import Sent, operator

from frameledger.frames import LLMMessagesAppendFrame, encode_frame
from frameledger_services.projector import batch_fold
from frameledger_services.projector.stored_heads import NewerHeadError
from frameledger_services.recovery import unpark as unparking
from frameledger_services.recovery.unpark import unpark

OLDER = NEWER - 1


def quietly(count):
    log = Log()
    frame = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "quiet"}])
    for _ in range(count):
        log.add("ctx", encode_frame(frame))
    return log.records


def store(database, records, **options):
    async def run():
        async with Projecting(database, **options) as projecting:
            await projecting.store(records)

    asyncio.run(run())


def texts(database):
    with psycopg.connect(database) as connection:
        return [one["content"] for one in value_of(connection, "SELECT context_at('ctx')")["messages"]]


def head(database):
    with psycopg.connect(database) as connection:
        return connection.execute(
            "SELECT fold_version, folded_by::text, rebuilt, state_version FROM contexts"
        ).fetchone()


def test_a_short_conversation_is_rebuilt_when_its_next_frame_arrives(database, monkeypatch):
    records = quietly(5)
    store(database, records[:3])
    with newer_release(monkeypatch):
        store(database, records[3:], rebuild_frames=1_000)
    assert texts(database) == ["QUIET"] * 5
    assert head(database)[:3] == (NEWER, None, 1)


@pytest.mark.parametrize("limit", [0, 2])
def test_a_long_one_goes_on_and_says_which_fold_folded_what(database, monkeypatch, limit):
    records = quietly(20)
    store(database, records[:1])
    store(database, records[1:17])
    assert head(database) == (OLDER, None, 0, 17)
    with newer_release(monkeypatch):
        store(database, records[17:19], rebuild_frames=limit)
        store(database, records[19:], rebuild_frames=limit)
    assert texts(database) == ["quiet"] * 17 + ["QUIET"] * 3
    assert head(database) == (NEWER, f"[[1,{OLDER}],[18,{NEWER}]]", 0, 19)


def test_what_a_newer_release_touched_is_refused_by_the_older_one_from_the_first_frame_on(
    database, monkeypatch
):
    records = quietly(3)
    store(database, records[:1])
    with newer_release(monkeypatch):
        store(database, records[1:2])
    with pytest.raises(NewerHeadError):
        store(database, records[2:])
    with newer_release(monkeypatch):
        store(database, records[2:])
    assert texts(database) == ["quiet", "QUIET", "QUIET"]


def test_a_conversation_that_is_parked_at_its_first_frame_is_rebuilt_up_to_there(database, monkeypatch):
    def failing(state, frame, *others):
        raise ValueError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(batch_fold, "evolve", failing)
        store(database, quietly(2))
    with newer_release(monkeypatch), monkeypatch.context() as newer:
        newer.setattr(unparking, "evolve", shouting)
        assert rebuild_in(database, "ctx").progress.rebuilt_count == 1
        assert asyncio.run(unparked(database)).error is None
    assert texts(database) == ["QUIET"] * 2
    assert head(database)[:2] == (NEWER, None)


async def unparked(database):
    async with operator(database) as connection:
        return await unpark(connection, NAMES, "ctx", "a test", Sent())

"""Unparking on a real database: in the end the tables are as if nothing had been parked."""

import asyncio
import itertools
import json
import time

import psycopg
import pytest
from tests.support.batches import (
    HISTORIES,
    PARTITIONS,
    TOPIC,
    TOPICS,
    Log,
    Projecting,
    dump,
    histories_interleaved,
    project,
    same,
    value_of,
)
from tests.support.tampering import changed
from tests.support.tiers import long
from tests.support.unparking import Sent, operator

from frameledger.derived import run_id
from frameledger.evolve import evolve
from frameledger.frames import (
    ContextSnapshot,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMRunFrame,
    encode_frame,
)
from frameledger.ids import ContextId, Version
from frameledger.record import Record, decode
from frameledger.values import replace
from frameledger_services.audit import restore
from frameledger_services.audit.verify import verify
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector import batch_fold, stored_heads
from frameledger_services.projector.ownership import ProjectorFencedError
from frameledger_services.projector.rebuild import rebuild
from frameledger_services.recovery import unpark as unparking
from frameledger_services.recovery.unpark import NotParkedError, unpark
from frameledger_services.settings import Settings
from frameledger_services.store import topics
from frameledger_services.store.topics import StoredTopic

NAMES = TopicNames("llm.")
HI = LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Hi"}])


@pytest.fixture
def poison(monkeypatch):
    """The versions, by context, at which the projector's fold fails. That of `unpark` does not."""
    poisoned: dict[str, int] = {}
    monkeypatch.setattr(batch_fold, "evolve", failing_at(poisoned))
    return poisoned


def failing_at(poisoned):
    def failing(state, frame, *others):
        if state.version + 1 == poisoned.get(state.context_id):
            raise ValueError(f"cannot fold\x00 version {state.version + 1}")
        return evolve(state, frame, *others)

    return failing


def unparked(address, context_id, send=None):
    async def run():
        async with operator(address) as connection:
            return await unpark(connection, NAMES, context_id, "a test", send or Sent())

    return asyncio.run(run())


def parked_since(address):
    with psycopg.connect(address) as connection:
        return dict(connection.execute("SELECT context_id, since FROM parked").fetchall())


def frames_of(path):
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(decode(line))
        except ValueError:
            continue
    return found


def talk(*frames, at=None):
    """The records of a conversation `ctx`; `at` is when the broker took them, in seconds since 1970."""
    log = Log()
    for frame in frames:
        log.add("ctx", encode_frame(frame))
    if at is None:
        return log.records
    return [
        Record(one.topic, one.partition, one.offset, one.key, one.value, one.headers, int(at * 1000))
        for one in log.records
    ]


@pytest.mark.long
def test_what_was_parked_reads_as_if_it_had_never_been(
    database, make_database, migrated_template, poison, monkeypatch
):
    untouched = make_database(template=migrated_template)
    project(untouched, histories_interleaved())
    poison.update({path.stem: max(1, len(frames_of(path)) // 3) for path in HISTORIES})
    project(database, histories_interleaved(), cache_bytes=1)
    assert set(parked_since(database)) == {path.stem for path in HISTORIES}

    for path, at_once in zip(HISTORIES, itertools.cycle([1, 7, 2_000]), strict=False):
        monkeypatch.setattr(unparking, "FRAMES_AT_ONCE", at_once)
        done = unparked(database, path.stem)
        assert (done.error, done.parked_version) == (None, None)

    assert parked_since(database) == {}
    same(dump(database), dump(untouched))


def test_what_cannot_be_folded_again_after_a_restart_is_parked_and_reads_as_it_did(database, monkeypatch):
    """Another release folded a frame that the stored state does not include yet, and this one's fold fails at it."""
    records = talk(HI, HI, LLMRunFrame(), HI, HI)
    project(database, records[:4])
    with psycopg.connect(database, autocommit=True) as connection:
        before = value_of(connection, "SELECT row_to_json(c)::jsonb FROM contexts AS c")
        assert before["state_version"] < 3 < before["version"]
        with monkeypatch.context() as broken:
            broken.setattr(stored_heads, "evolve", failing_at({"ctx": 3}))
            project(database, records[4:])
            done = unparked(database, "ctx")
            assert (done.folded, done.parked_version) == (0, 5)
            assert "cannot fold" in done.error
            assert parked_since(database) == {"ctx": 5}
        assert value_of(connection, "SELECT version FROM contexts") == 5
        after = value_of(connection, "SELECT row_to_json(c)::jsonb FROM contexts AS c")
        moved = {name for name in before if before[name] != after[name]}
        assert moved == {"version", "chain", "last_at", "parked_version", "parked_at", "parked_error"}
        assert len(value_of(connection, "SELECT context_at('ctx')")["messages"]) == 3

        assert unparked(database, "ctx").folded == 1
        assert len(value_of(connection, "SELECT context_at('ctx')")["messages"]) == 4


@pytest.mark.regression("fault 17a")
def test_what_another_release_folded_otherwise_is_parked_where_the_rows_end(database, monkeypatch):
    """The stored rows are the other release's. A state that this one folds would not match them: positions would be
    used twice, and work would have no rows."""
    records = talk(HI, HI, LLMRunFrame(), HI, HI)
    project(database, records[:4])

    def otherwise(state, frame, *others):
        step = evolve(state, frame, *others)
        return replace(step, outcome="ignored", reason="run_over") if step.state.version == 3 else step

    with monkeypatch.context() as another:
        another.setattr(stored_heads, "evolve", otherwise)
        project(database, records[4:])
        assert parked_since(database) == {"ctx": 5}
        with psycopg.connect(database) as connection:
            error = value_of(connection, "SELECT parked_error FROM contexts")
        assert "version 3 was applied when it was first folded, and is ignored (run_over)" in error
    assert unparked(database, "ctx").folded == 1


@pytest.mark.regression("fault 17a")
def test_a_frame_that_an_older_release_did_not_know_stays_what_it_was(database):
    records = talk(HI, HI, HI)
    project(database, records[:2])
    with psycopg.connect(database, autocommit=True) as connection:
        # As an older release leaves it, which does not know the type of the second frame.
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE frames SET outcome = 'unknown' WHERE version = 2")
        project(database, records[2:])
        assert parked_since(database) == {}
        assert value_of(connection, "SELECT version FROM contexts") == 3


def test_what_comes_after_a_restart_is_parked_like_what_came_before(database, poison):
    poison["ctx"] = 2
    records = talk(HI, LLMRunFrame(), HI, HI)
    project(database, records[:3])
    project(database, records[3:])
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM rejected_frames").fetchone() == (0,)
        outcomes = connection.execute("SELECT outcome FROM frames ORDER BY version").fetchall()
    assert outcomes == [("applied",), ("parked",), ("parked",), ("parked",)]


def test_a_frame_that_still_cannot_be_folded_keeps_the_rest_parked_with_the_new_error(
    database, poison, monkeypatch
):
    poison["ctx"] = 2
    project(database, talk(HI, HI, HI, HI, HI))
    with monkeypatch.context() as broken:
        broken.setattr(unparking, "evolve", failing_at({"ctx": 4}))
        done = unparked(database, "ctx")
    assert (done.folded, done.parked_version) == (2, 4)
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT parked_error FROM contexts") == done.error
        assert len(value_of(connection, "SELECT context_at('ctx')")["messages"]) == 3
        outcomes = connection.execute("SELECT outcome FROM frames ORDER BY version").fetchall()
    assert [outcome for (outcome,) in outcomes] == ["applied"] * 3 + ["parked"] * 2

    assert unparked(database, "ctx").folded == 2
    with psycopg.connect(database) as connection:
        assert len(value_of(connection, "SELECT context_at('ctx')")["messages"]) == 5


def test_what_the_database_still_refuses_stays_parked(database, poison):
    poison["ctx"] = 2
    project(database, talk(HI, HI, LLMRunFrame(), HI))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER TABLE runs ADD CONSTRAINT refused CHECK (false) NOT VALID")
        done = unparked(database, "ctx")
        assert (done.folded, done.parked_version) == (1, 3)
        connection.execute("ALTER TABLE runs DROP CONSTRAINT refused")
    assert unparked(database, "ctx").folded == 2


def test_every_changed_outcome_says_who_changed_it_and_why(database, poison):
    poison["ctx"] = 2
    project(database, talk(HI, HI, HI))
    unparked(database, "ctx")
    with psycopg.connect(database) as connection:
        changes = connection.execute(
            "SELECT version, old_outcome, new_outcome, why FROM outcome_changes ORDER BY version"
        ).fetchall()
        intact = connection.execute("SELECT intact FROM verify_chain('ctx')").fetchone()
    assert changes == [(2, "parked", "applied", "a test"), (3, "parked", "applied", "a test")]
    assert intact == (True,)


def test_a_running_projector_notices_and_goes_on(database, poison):
    poison["ctx"] = 2
    records = talk(HI, HI, HI, HI)

    async def run():
        async with Projecting(database) as projecting, operator(database) as connection:
            await projecting.store(records[:3])
            assert (await unpark(connection, NAMES, "ctx", "a test", Sent())).folded == 2
            with pytest.raises(ProjectorFencedError):
                await projecting.store(records[3:])
        async with Projecting(database) as again:
            await again.store(records[3:])

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert len(value_of(connection, "SELECT context_at('ctx')")["messages"]) == 4


def test_only_a_parked_conversation_can_be_unparked(database):
    project(database, talk(HI))
    for context_id in ("ctx", "nobody"):
        with pytest.raises(NotParkedError):
            unparked(database, context_id)


def test_young_work_is_asked_for(database, poison):
    poison["ctx"] = 2
    project(database, talk(HI, HI, LLMRunFrame(), at=time.time()))
    sent = Sent()
    assert unparked(database, "ctx", sent).record_count == 1
    (row,) = sent.rows
    assert (row.to_topic, row.key) == ("llm.inference", b"ctx")
    effect = json.loads(row.value)
    with psycopg.connect(database) as connection:
        asked = connection.execute("SELECT run_id, opened_version FROM runs WHERE status = 'open'").fetchone()
        assert connection.execute("SELECT count(*) FROM outbox").fetchone() == (0,)
    assert (effect["run_id"], effect["version"]) == asked == (asked[0], 3)


def test_an_old_run_is_closed_by_a_frame_that_counts_once(database, poison):
    poison["ctx"] = 2
    records = talk(HI, LLMRunFrame())
    project(database, records)
    sent = Sent()
    unparked(database, "ctx", sent)
    (row,) = sent.rows
    assert row.to_topic == NAMES.frames
    project(database, [published(row, records, 2), published(row, records, 3)])
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version FROM causes('ctx', 3)").fetchall() == [(3,), (2,)]
        assert connection.execute("SELECT status, error_code FROM runs").fetchall() == [("failed", "parked")]
        assert connection.execute("SELECT version, duplicate_count FROM contexts").fetchone() == (3, 1)


def test_an_old_call_is_cancelled_by_a_frame(database, poison):
    poison["ctx"] = 4
    run = {"run_id": run_id(ContextId("ctx"), Version(1)), "attempt": 1}
    call = FunctionCallFromLLM(function_name="look", tool_call_id="call-1", arguments={})
    records = talk(
        LLMRunFrame(),
        LLMFullResponseStartFrame(**run),
        FunctionCallsStartedFrame(function_calls=[call], **run),
        LLMFullResponseEndFrame(**run),
    )
    project(database, records)
    sent = Sent()
    unparked(database, "ctx", sent)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT status FROM tool_calls").fetchall() == [("dispatched",)]
    (row,) = sent.rows
    project(database, [published(row, records, 4)])
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT version FROM causes('ctx', 5)").fetchall() == [(5,), (4,)]
        assert connection.execute("SELECT status FROM tool_calls").fetchall() == [("cancelled",)]


def test_work_that_was_begun_before_and_is_over_is_told_to_stop(database, poison):
    poison["ctx"] = 2
    project(database, talk(LLMRunFrame(), InterruptionFrame(), LLMRunFrame(), InterruptionFrame()))
    sent = Sent()
    unparked(database, "ctx", sent)
    (row,) = sent.rows
    assert row.to_topic == NAMES.cancellations
    assert json.loads(row.value)["run_id"] == run_id(ContextId("ctx"), Version(1))


def test_a_recording_that_is_unparked_asks_for_nothing(database, poison):
    poison["ctx"] = 2
    opening = LLMContextFrame(context=ContextSnapshot(messages=[]), react=False)
    project(database, talk(opening, LLMRunFrame(), at=time.time()))
    assert unparked(database, "ctx").record_count == 0


def test_what_could_not_be_published_waits_in_the_outbox(database, poison):
    poison["ctx"] = 2
    project(database, talk(HI, LLMRunFrame(), at=time.time()))
    done = unparked(database, "ctx", Sent(BrokerError("away")))
    assert (done.record_count, done.unsent) == (1, "away")
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_topic FROM outbox").fetchall() == [("llm.inference",)]


def published(row, records, offset):
    """The row that was sent, as the next record of the conversation's partition."""
    return Record(
        row.to_topic, records[0].partition, offset, row.key, row.value, row.headers, 1_780_000_000_000
    )


@pytest.mark.regression("fault 101")
@pytest.mark.parametrize("missing", [(2, 3), long((3, 4)), (5,), long((1, 2, 3, 4, 5))], ids=str)
def test_frames_that_are_restored_from_the_log_are_parked_as_they_were(
    database, poison, monkeypatch, missing
):
    poison["ctx"] = 3
    log = Log()
    for _ in range(5):
        log.add("ctx", encode_frame(HI))
    project(database, log.records)
    asked = "SELECT version, outcome, payload::text FROM frames ORDER BY version"
    with psycopg.connect(database) as connection:
        stored = connection.execute(asked).fetchall()
    assert [outcome for _, outcome, _ in stored] == ["applied"] * 2 + ["parked"] * 3
    changed(database, f"DELETE FROM frames WHERE version = ANY (ARRAY{list(missing)})")

    # These read the log above in place of Kafka.
    async def partition_records(_settings, _topic, partition, first, end):
        for record in log.records:
            if record.partition == partition and first <= record.offset < end:
                yield record

    class Probe:
        async def offsets(self, _):
            return 0, len(log.records)

    async def newest_topic(*_):
        return StoredTopic(1, PARTITIONS, None)

    monkeypatch.setattr(restore, "partition_records", partition_records)
    monkeypatch.setattr(topics, "newest", newest_topic)

    async def run():
        async with operator(database) as connection:
            restoring = restore.Restoring(Settings(), TOPIC, Probe())
            assert await restoring.restore(connection, ContextId("ctx")) == len(missing)
            await rebuild(connection, TOPIC, TOPICS.effects, ContextId("ctx"), "rows were missing")
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            [verified] = await verify(connection, ["ctx"], again=True)
            assert (verified.parked_version, verified.differences.in_order()) == (3, [])

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert connection.execute(asked).fetchall() == stored

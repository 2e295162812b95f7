"""While a partition catches up with the end of its log, no effects are published; then only those of work that is still
open."""

import asyncio
import json
import signal
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from pydantic import SecretStr
from tests.support.batches import PARTITIONS, TOPIC, TOPICS, Log, Projecting, histories_interleaved, value_of
from tests.support.claim_workers import connected_for_long, die, workers
from tests.support.killable import STATEMENT_PER_TABLE, Plan, projector
from tests.support.pipeline import Raw, fold_topic, histories, own_pipeline  # noqa: F401  # a fixture
from tests.support.tiers import long

from frameledger import derived
from frameledger.effects import CallFunction, RunInference
from frameledger.ids import ContextId, Version
from frameledger_services import claims
from frameledger_services.claims import unclaimed
from frameledger_services.projector import held_effects, writer
from frameledger_services.projector import rebuild as rebuilding
from frameledger_services.projector.ownership import ProjectorFencedError
from frameledger_services.store import held_effects as statements
from frameledger_services.store import outbox, partition_progress, projections
from frameledger_services.work.effect_decoding import decode_effect

AGES = timedelta(days=100_000)
HI = {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": "Hi"}], "run_llm": True}
ANY_RUN = {"serves": (), "serves_all": True}
ANY_CALL = ANY_RUN | {"kind": "functions"}


class Held(Projecting):
    """A projector whose partitions hold their effects until a given offset, by default one that is never reached."""

    async def __aenter__(self):
        await super().__aenter__()
        for owned in self.owned.values():
            await self.hold(owned.partition, 1_000_000)
        return self

    async def hold(self, partition, until):
        owned = self.owned[partition]
        owned.held_until = until
        await statements.hold(self.connection, TOPIC, partition, owned.epoch, until)

    async def let_out(self):
        """Release the effects of all partitions, as at the end of the log. Returns the rows of the outbox."""
        rows = []
        for owned in self.owned.values():
            await self.hold(owned.partition, owned.next_offset)
            for page in await held_effects.release(self.connection, TOPICS, owned):
                rows += (await outbox.read(self.connection, page))[0]
        return rows


def effects_of(rows):
    return {json.loads(row.value)["id"]: row for row in rows if row.kind == "effect"}


def split(rows):
    """Returns the effects in these rows of the outbox: those of runs, and those of calls."""
    runs = [decode_effect(RunInference, row.value) for row in rows if b"run_inference" in row.value]
    calls = [decode_effect(CallFunction, row.value) for row in rows if b"call_function" in row.value]
    return runs, calls


def ended_run(log, context_id, count=1):
    """Add a run that has ended, with calls that one frame dispatches."""
    run = {"run_id": derived.run_id(ContextId(context_id), Version(1)), "attempt": 1}
    calls = [
        {"tool_call_id": f"{context_id}-{number}", "function_name": "pay", "arguments": {}}
        for number in range(count)
    ]
    for frame in (
        HI,
        {"type": "LLMFullResponseStartFrame"} | run,
        {"type": "FunctionCallsStartedFrame", "function_calls": calls} | run,
        {"type": "LLMFullResponseEndFrame", "finish_reason": "tool_calls"} | run,
    ):
        log.add(context_id, json.dumps(frame).encode())


@pytest.fixture
def everything_is_young(monkeypatch):
    monkeypatch.setattr(held_effects, "MAX_AGE", AGES)


@pytest.mark.regression("journey 2")
@pytest.mark.parametrize("size", [long(1), 3, 1_000], ids=str)
def test_of_all_that_was_held_back_what_is_open_in_the_end_is_asked_for_once(
    database, everything_is_young, size
):
    records = histories_interleaved()
    records = records[: len(records) // 4]

    async def run():
        async with Held(database) as held:
            for start in range(0, len(records), size):
                await held.store(records[start : start + size])
            assert effects_of(held.outbox) == {}
            rows = await held.let_out()
            assert await held.let_out() == []
            return rows

    rows = asyncio.run(run())
    still_open = fold_topic(records).still_open
    assert len(still_open) > 2
    assert [json.loads(row.value)["id"] for row in rows] == list(effects_of(rows))
    assert effects_of(rows).keys() == still_open
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM outbox WHERE kind = 'effect'") == len(rows)
        assert (
            value_of(connection, "SELECT count(*) FROM projections WHERE effects_held_until IS NOT NULL") == 0
        )


def test_what_is_let_out_are_the_effects_that_the_frames_would_have_had(
    database, make_database, migrated_template, everything_is_young
):
    log = Log()
    for number in range(3):
        log.add(f"run-{number}", json.dumps(HI).encode())
        ended_run(log, f"call-{number}")

    async def run(projecting):
        async with projecting:
            await projecting.store(log.records)
            return [*projecting.outbox, *(await projecting.let_out() if isinstance(projecting, Held) else [])]

    usual = asyncio.run(run(Projecting(make_database(template=migrated_template))))
    held = asyncio.run(run(Held(database)))
    still_open = fold_topic(log.records).still_open
    assert effects_of(held) == {key: row for key, row in effects_of(usual).items() if key in still_open}
    assert len(held) == 6


@pytest.mark.regression("fault 25")
@pytest.mark.parametrize("at_once", [1, 2, 2_000], ids=str)
def test_what_is_let_out_is_read_and_written_in_pages_that_may_divide_the_calls_of_one_frame(
    database, monkeypatch, everything_is_young, at_once
):
    monkeypatch.setattr(statements, "AT_ONCE", at_once)
    log = Log()
    for number in range(4):
        log.add(f"run-{number}", json.dumps(HI).encode())
        ended_run(log, f"calls-{number}", count=3)
    sizes: list[int] = []
    write = writer.write

    async def counted(connection, rows, heads):
        sizes.append(len(rows.outbox))
        await write(connection, rows, heads)

    monkeypatch.setattr(held_effects, "write", counted)

    async def run():
        async with Held(database) as held:
            await held.store(log.records)
            return await held.let_out()

    rows = asyncio.run(run())
    assert effects_of(rows).keys() == fold_topic(log.records).still_open
    assert len(rows) == 16
    assert max(sizes) <= at_once
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM outbox WHERE kind = 'effect'") == 16
        assert value_of(connection, "SELECT max(ordinal) FROM outbox") == 2


@pytest.mark.regression("fault 25")
def test_who_dies_between_two_pages_has_let_nothing_out(database, monkeypatch, everything_is_young):
    monkeypatch.setattr(statements, "AT_ONCE", 2)
    log = Log()
    ended_run(log, "calls", count=3)
    write = writer.write
    pages: list[int] = []

    class Died(BaseException):
        pass

    async def dies(connection, rows, heads):
        if pages:
            raise Died
        pages.append(len(rows.outbox))
        await write(connection, rows, heads)

    async def run():
        async with Held(database) as held:
            await held.store(log.records)
            with monkeypatch.context() as dying:
                dying.setattr(held_effects, "write", dies)
                with pytest.raises(Died):
                    await held.let_out()
            assert pages == [2]
            cursor = await held.connection.execute(
                "SELECT (SELECT count(*) FROM outbox), "
                "(SELECT count(*) FROM projections WHERE effects_held_until IS NOT NULL)"
            )
            left, still_held = await cursor.fetchone()
            assert left == 0
            assert still_held > 0
            return await held.let_out()

    assert effects_of(asyncio.run(run())).keys() == fold_topic(log.records).still_open


def test_what_somebody_has_claimed_or_what_the_outbox_has_is_not_asked_for_again(
    database, everything_is_young
):
    log = Log()
    for name in ("claimed", "in-the-outbox", "open"):
        log.add(name, json.dumps(HI).encode())

    async def run():
        async with Projecting(database) as before, workers(database, ANY_RUN) as (worker,):
            await before.store(log.records)
            (effect,) = (one for one in split(before.outbox)[0] if one.context_id == "claimed")
            assert len((await worker.claim_runs([effect])).claimed) == 1
            await before.connection.execute("DELETE FROM outbox WHERE context_id <> 'in-the-outbox'")
            async with Held(database) as held:
                return await held.let_out()

    assert [row.context_id for row in asyncio.run(run())] == ["open"]


@pytest.mark.regression("journey 2")
def test_nobody_takes_work_of_a_partition_that_catches_up(database, monkeypatch, everything_is_young):
    """Neither requested nor unclaimed work, nor that of a dead worker."""
    monkeypatch.setattr(unclaimed, "AFTER_SECONDS", -1.0)
    log = Log()
    log.add("a-run", json.dumps(HI).encode())
    log.add("of-the-dead", json.dumps(HI).encode())
    ended_run(log, "a-call")
    kinds = (ANY_RUN, ANY_RUN, ANY_CALL)

    async def taken(inference, functions, effects, calls):
        return [
            len((await inference.claim_runs(effects)).claimed),
            len((await functions.claim_calls(calls)).claimed),
            len(await inference.unclaimed_runs(10)),
            len(await functions.unclaimed_calls(10)),
            len(await inference.take_over_runs(10)),
        ]

    async def run():
        async with Projecting(database) as before, workers(database, *kinds) as (dead, inference, functions):
            await before.store(log.records)
            runs, calls = split(before.outbox)
            of_the_dead = [one for one in runs if one.context_id == "of-the-dead"]
            assert len((await dead.claim_runs(of_the_dead)).claimed) == 1
            await die(dead)
            await connected_for_long(inference)
            a_run = [one for one in runs if one.context_id == "a-run"]
            await before.connection.execute("DELETE FROM outbox")
            async with Held(database) as held:
                assert await taken(inference, functions, a_run, calls) == [0, 0, 0, 0, 0]
                assert await projections.next_offsets(held.connection, TOPIC) == {}
                assert await claims.unserved_runs(held.connection) == []
                await held.let_out()
                assert set(await projections.next_offsets(held.connection, TOPIC)) == set(range(PARTITIONS))
                assert await taken(inference, functions, a_run, calls) == [1, 1, 0, 0, 1]

    asyncio.run(run())


@pytest.mark.regression("journey 49")
def test_an_owner_in_another_database_of_the_server_owns_nothing_here(
    database, make_database, monkeypatch, everything_is_young
):
    """A dump is restored beside its original, whose projector still runs."""
    monkeypatch.setattr(unclaimed, "AFTER_SECONDS", -1.0)
    log = Log()
    log.add("a-run", json.dumps(HI).encode())

    async def owned_by(session, connection):
        cursor = await session.execute(
            "SELECT pid, backend_start FROM pg_stat_get_activity(pg_backend_pid())"
        )
        await connection.execute(
            "UPDATE projections SET owner = 'one here', owner_pid = %s, owner_started_at = %s",
            await cursor.fetchone(),
        )
        reach = await partition_progress.progress(connection, TOPIC)
        return (
            {one.is_owned for one in reach},
            await projections.duplicate_instance(connection, TOPIC, "one", "one there"),
        )

    async def run():
        async with (
            Projecting(database) as before,
            workers(database, ANY_RUN) as (worker,),
            await psycopg.AsyncConnection.connect(database, autocommit=True) as here,
            await psycopg.AsyncConnection.connect(make_database(), autocommit=True) as elsewhere,
        ):
            await before.store(log.records)
            await before.connection.execute("DELETE FROM outbox")
            assert await owned_by(here, before.connection) == ({True}, ("one here", here.info.backend_pid))
            assert len(await worker.unclaimed_runs(10)) == 1
            assert await owned_by(elsewhere, before.connection) == ({False}, None)
            assert await worker.unclaimed_runs(10) == []
            assert not await projections.terminate_owner(before.connection, TOPIC, 0)
            await elsewhere.execute("SELECT")

    asyncio.run(run())


@pytest.mark.regression("journey 2")
def test_what_was_asked_for_long_ago_is_closed_by_frames_and_held_until_these_are_folded(database):
    log = Log()
    log.add("a-run", json.dumps(HI).encode())
    ended_run(log, "a-call")

    async def run():
        async with Held(database) as held:
            await held.store(log.records)
            rows = await held.let_out()
            assert sorted(json.loads(row.value)["type"] for row in rows) == [
                "ErrorFrame",
                "FunctionCallCancelFrame",
            ]
            assert {row.to_topic for row in rows} == {TOPIC}
            homes = {row.partition for row in rows}
            assert {one.partition for one in held.owned.values() if one.held_until is not None} == homes
            # The closing frames are still in the outbox: none is written twice, and nothing is released yet.
            for partition in homes:
                await held.hold(partition, held.owned[partition].next_offset)
                assert await held_effects.release(held.connection, TOPICS, held.owned[partition]) == []
                assert held.owned[partition].held_until is not None
            await held.connection.execute("DELETE FROM outbox")
            for row in rows:
                log.add(row.key, row.value, headers=row.headers)
            await held.store(log.records[-len(rows) :])
            for partition in homes:
                assert await held_effects.release(held.connection, TOPICS, held.owned[partition]) == []
                assert held.owned[partition].held_until is None

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT status FROM runs WHERE context_id = 'a-run'") == "failed"
        assert (
            value_of(connection, "SELECT status FROM tool_calls WHERE context_id = 'a-call'") == "cancelled"
        )
        assert value_of(connection, "SELECT count(*) FROM frames WHERE outcome = 'ignored'") == 0
        for context_id, closing, asked in (("a-run", 2, 1), ("a-call", 5, 4)):
            causes = connection.execute(
                "SELECT version FROM causes(%s, %s)", (context_id, closing)
            ).fetchall()
            assert causes == [(closing,), (asked,)]


@pytest.mark.regression("fault 198")
@pytest.mark.parametrize("at_once", [1, 2, 3], ids=str)
def test_old_calls_of_one_frame_are_closed_together_however_pages_divide_them(database, monkeypatch, at_once):
    """Closing frames are deleted from the outbox a moment after they are folded. The release must not wait again for
    those of other calls of the same frame."""
    monkeypatch.setattr(statements, "AT_ONCE", at_once)
    log = Log()
    ended_run(log, "calls", count=4)
    ended_run(log, "other-calls", count=4)

    async def run():
        async with Held(database) as held:
            await held.store(log.records)
            rows = await held.let_out()
            for closing in rows:
                log.add(closing.key, closing.value, headers=closing.headers)
            await held.store(log.records[-len(rows) :])
            for owned in held.owned.values():
                while owned.held_until == owned.next_offset:
                    for page in await held_effects.release(held.connection, TOPICS, owned):
                        for closing in (await outbox.read(held.connection, page))[0]:
                            log.add(closing.key, closing.value, headers=closing.headers)
                            await held.store(log.records[-1:])
                assert owned.held_until is None, "it waits for a frame that nobody publishes"

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM tool_calls WHERE status = 'cancelled'") == 8


@pytest.mark.regression("fault 43")
@pytest.mark.parametrize("released_at", [None, "before commit", "after commit"], ids=str)
def test_a_rebuild_requests_nothing_while_the_partition_catches_up_and_what_is_open_is_asked_for_once(
    database, everything_is_young, monkeypatch, released_at
):
    monkeypatch.setattr(rebuilding, "MAX_AGE", AGES)
    log = Log()
    log.add("a-run", json.dumps(HI).encode())

    async def run():
        async with (
            Held(database) as held,
            await psycopg.AsyncConnection.connect(database, autocommit=True) as operator,
        ):
            await held.store(log.records)
            await held.connection.execute("DELETE FROM runs")
            asked = []

            async def release(point):
                if point == released_at:
                    asked.extend(await held.let_out())

            arguments = (TOPIC, TOPICS.effects, ContextId("a-run"), "a test")
            done = await rebuilding.rebuild(operator, *arguments, failpoint=release)
            assert [work.kind for work in done.newly_open] == ["run"]
            rows = [*asked, *done.outbox]
            return rows if released_at else [*rows, len(rows), *await held.let_out()]

    rows = asyncio.run(run())
    if released_at is None:
        assert rows.pop(0) == 0
    assert effects_of(rows).keys() == fold_topic(log.records).still_open
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM outbox WHERE kind = 'effect'") == len(rows) == 1


@pytest.mark.regression("fault 30")
def test_old_work_that_the_outbox_requests_is_not_waited_for_as_if_a_frame_closed_it(database):
    log = Log()
    log.add("in-the-outbox", json.dumps(HI).encode())
    ended_run(log, "a-call")

    async def run():
        async with Projecting(database) as before:
            await before.store(log.records)
            left = before.outbox
        async with Held(database) as held:
            assert await held.let_out() == []
            assert {one.held_until for one in held.owned.values()} == {None}
        return left

    left = asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM outbox WHERE kind = 'effect'") == len(left) == 3


def test_a_projector_that_was_fenced_sends_none_of_its_held_effects(database, everything_is_young):
    log = Log()
    log.add("a-run", json.dumps(HI).encode())

    async def run():
        async with Held(database) as held:
            await held.store(log.records)
            for partition in held.owned:
                await projections.assign(held.connection, TOPIC, partition, "another")
            with pytest.raises(ProjectorFencedError):
                await held.let_out()

    asyncio.run(run())
    with psycopg.connect(database) as connection:
        assert value_of(connection, "SELECT count(*) FROM outbox") == 0


def of_context(context_id, *frames):
    return [Raw(context_id.encode(), json.dumps(frame).encode()) for frame in frames]


def long_answer(context_id, words):
    """Returns the records of a run that has ended, with an answer of so many words."""
    run = {"run_id": derived.run_id(ContextId(context_id), Version(1)), "attempt": 1}
    return of_context(
        context_id,
        HI,
        {"type": "LLMFullResponseStartFrame"} | run,
        *({"type": "LLMTextFrame", "text": f"{number} "} | run for number in range(words)),
        {"type": "LLMFullResponseEndFrame", "finish_reason": "stop"} | run,
    )


def effects_on(pipeline):
    """Returns how often each effect is on the topics of runs and calls, by its id."""
    found: dict[str, int] = {}
    for topic in (pipeline.names.inference, pipeline.names.function_calls):
        for record in pipeline.records(topic):
            effect = json.loads(record.value)
            found[effect["id"]] = found.get(effect["id"], 0) + 1
    return found


def in_another_database(pipeline, make_database, migrated_template):
    """Continue with the same topics and an empty database."""
    address = make_database(template=migrated_template)
    pipeline.settings = pipeline.settings.model_copy(update={"database_url": SecretStr(address)})
    pipeline.address = address


OPEN = [*of_context("waits-for-an-answer", HI)]
NAMED = Plan(member="it", session_ms=30_000)
"""A projector that need not wait for its predecessor's session, and that keeps its partitions on a busy machine: after
a rebalance it would hold effects again."""


@pytest.mark.regression("journey 2")
@pytest.mark.parametrize("point", [None, long("after commit"), long("before send")], ids=str)
def test_a_database_that_is_filled_from_the_log_anew_asks_for_nothing_that_is_over(
    pipeline, make_database, migrated_template, point
):
    """With a point, the projector is killed there once: after a batch, or when effects are released."""
    log = Log()
    ended_run(log, "waits-for-a-function")
    waiting = [Raw(one.key, one.value) for one in log.records]
    with projector(pipeline.settings, NAMED) as running:
        # For frames from before it owned the partitions it would publish only the effects of open work.
        pipeline.until_owned_by(running)
        pipeline.publish([*histories("first"), *long_answer("long", 2_500), *OPEN, *waiting])
        pipeline.until_idle(running)
        assert running.stop() == 0
    before = effects_on(pipeline)
    still_open = dict.fromkeys(fold_topic(pipeline.records()).still_open, 1)
    assert still_open.items() < before.items()
    in_another_database(pipeline, make_database, migrated_template)
    if point is not None:
        with projector(pipeline.settings, replace(NAMED, point=point, small=STATEMENT_PER_TABLE)) as doomed:
            doomed.arm()
            assert doomed.ended() == -signal.SIGKILL
    with projector(pipeline.settings, NAMED) as running:
        pipeline.until_owned_by(running)
        pipeline.until_idle(running)
        assert running.stop() == 0
    after = effects_on(pipeline)
    again = {
        effect: count - before.get(effect, 0)
        for effect, count in after.items()
        if count > before.get(effect, 0)
    }
    assert again == still_open

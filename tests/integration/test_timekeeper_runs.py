"""Runs that no worker claims, or that fall silent: one fatal error each, and the conversation continues."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest
from tests.support.timekeeping import FAR, PAST, limits, with_harness
from tests.unit.rules.dsl import (
    announce,
    ask,
    committed,
    context,
    end,
    fail,
    finish,
    hear,
    interim,
    speak,
    start,
    stop,
    tokens,
)

from frameledger import derived
from frameledger.ids import ContextId
from frameledger_services import claims, failpoints
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.projector import held_effects
from frameledger_services.settings import Settings
from frameledger_services.store import held_effects as held_statements
from frameledger_services.store import overdue, projections
from frameledger_services.telemetry.metrics_recorder import NO_METRICS
from frameledger_services.timekeeper import service
from frameledger_services.timekeeper.metrics import TimekeeperMetrics
from frameledger_services.timekeeper.service import Timekeeper

CTX = "harness"
QUESTION = [speak(), hear("What time is it?"), stop()]
ASKED = 3
MINUTE = 60.0


def run(asked: int = ASKED) -> str:
    return derived.run_id(ContextId(CTX), asked)


def test_an_unclaimed_run_fails_and_the_next_words_are_answered(database):
    async def test(harness):
        await harness.say(CTX, QUESTION)
        assert await harness.settle(limits(run_unclaimed=FAR)) == []
        assert await harness.settle(limits(run_unclaimed=PAST)) == [("run_unclaimed", "applied")]
        assert await harness.run(CTX, ASKED) == ("failed", "run_unclaimed")
        assert await harness.settle(limits(run_unclaimed=PAST)) == []
        version = await harness.say(CTX, hear("Are you there?"))
        assert await harness.open_run(CTX) == version
        assert await harness.texts(CTX) == ["What time is it?", "Are you there?"]

    with_harness(database, test)


def test_a_run_that_was_remembered_starts_when_the_one_before_fails(database):
    async def test(harness):
        await harness.say(CTX, QUESTION, ask())
        assert await harness.settle(limits(run_unclaimed=PAST)) == [("run_unclaimed", "applied")]
        assert await harness.open_run(CTX) == 5
        assert await harness.run(CTX, 4) == ("open", None)

    with_harness(database, test)


def test_a_run_that_a_live_worker_has_is_not_unclaimed_until_the_worker_has_been_gone_for_long(database):
    async def test(harness):
        await harness.say(CTX, QUESTION)
        await harness.lives("worker", kind="inference")
        await harness.claimed_run(CTX, ASKED, "worker")
        await harness.an_hour_passes(CTX)
        assert await harness.settle(limits(run_unclaimed=MINUTE)) == []
        await harness.dies("worker")
        assert await harness.settle(limits(run_unclaimed=10 * MINUTE)) == []
        assert await harness.settle(limits(run_unclaimed=MINUTE / 2), may_judge=False) == []
        assert await harness.settle(limits(run_unclaimed=MINUTE / 2)) == [("run_unclaimed", "applied")]

    with_harness(database, test)


@pytest.mark.regression("worker 24")
def test_a_run_that_a_live_worker_released_is_unclaimed_since_then(database):
    async def test(harness):
        await harness.say(CTX, QUESTION)
        await harness.lives("worker", kind="inference")
        await harness.claimed_run(CTX, ASKED, "worker")
        await harness.an_hour_passes(CTX)
        await harness.execute("UPDATE claims SET released_at = now() - interval '1 minute'")
        assert await harness.settle(limits(run_unclaimed=2 * MINUTE)) == []
        assert await harness.settle(limits(run_unclaimed=MINUTE / 2)) == [("run_unclaimed", "applied")]

    with_harness(database, test)


def test_a_run_that_has_started_is_not_unclaimed(database):
    async def test(harness):
        await harness.say(CTX, QUESTION, start(run()))
        assert await harness.settle(limits(run_unclaimed=PAST)) == []

    with_harness(database, test)


def test_a_silent_run_fails_with_what_was_said_and_without_its_calls(database):
    async def test(harness):
        await harness.say(
            CTX, QUESTION, start(run()), tokens("It is ", "late", run=run()), announce("a", run=run())
        )
        assert await harness.settle(limits(run_silent=FAR)) == []
        assert await harness.settle(limits(run_silent=PAST)) == [("run_silent", "applied")]
        assert await harness.run(CTX, ASKED) == ("failed", "run_silent")
        assert await harness.texts(CTX) == ["What time is it?", "It is late"]
        assert await harness.call(CTX, "a") == ("forgotten", None)
        late = await harness.say(CTX, end(run()))
        assert await harness.value("SELECT reason FROM frames WHERE version = %s", late) == "run_over"
        version = await harness.say(CTX, hear("And?"))
        assert await harness.open_run(CTX) == version

    with_harness(database, test)


def test_only_a_frame_of_the_run_that_counts_ends_its_silence(database):
    async def test(harness):
        silent = limits(run_silent=MINUTE)
        await harness.say(CTX, QUESTION, start(run(), 2), tokens("It", run=run(), attempt=2))
        await harness.an_hour_passes(CTX)
        # Neither the user nor a superseded attempt counts as a sign of the run.
        await harness.say(CTX, speak(), interim(), tokens("Its", run=run(), attempt=1))
        found = await harness.sweep(silent)
        assert [one.rule for one in found] == ["run_silent"]
        await harness.say(CTX, tokens(" is", run=run(), attempt=2))
        assert await harness.sweep(silent) == []
        # What was found before is settled all the same: a worker that speaks again after so long is too late.
        harness.publish(found)
        await harness.project()
        assert await harness.became(found[0]) == "applied"

    with_harness(database, test)


def test_a_run_that_goes_on_with_the_next_attempt_is_not_ended_for_the_silence_of_the_one_before(database):
    async def test(harness):
        await harness.say(CTX, QUESTION, start(run()), tokens("It", run=run()))
        found = await harness.sweep(limits(run_silent=PAST))
        await harness.say(CTX, start(run(), 2))
        harness.publish(found)
        await harness.project()
        assert await harness.became(found[0]) == "attempt_superseded"
        # The settlement that is due later has another id, so it is no duplicate.
        assert await harness.settle(limits(run_silent=PAST)) == [("run_silent", "applied")]

    with_harness(database, test)


def test_of_an_answer_without_run_ids_the_frames_without_one_are_the_runs(database):
    async def test(harness):
        silent = limits(run_silent=MINUTE)
        await harness.say(CTX, QUESTION, start(), tokens("It"))
        await harness.an_hour_passes(CTX)
        assert len(await harness.sweep(silent)) == 1
        await harness.say(CTX, tokens(" is"))
        assert await harness.settle(silent) == []
        await harness.an_hour_passes(CTX)
        assert await harness.settle(silent) == [("run_silent", "applied")]
        assert await harness.texts(CTX) == ["What time is it?", "It is"]

    with_harness(database, test)


def test_a_run_is_silent_too_where_others_speak_all_the_time(database, monkeypatch):
    monkeypatch.setattr(overdue, "WINDOW", 3)

    async def test(harness):
        silent = limits(run_silent=MINUTE)
        await harness.say(CTX, QUESTION, start(run()))
        await harness.an_hour_passes(CTX)
        await harness.say(CTX, speak(), interim(), interim())
        # The window holds nothing of the run, and is younger than the limit.
        assert await harness.sweep(silent) == []
        await harness.an_hour_passes(CTX)
        await harness.say(CTX, interim())
        assert len(await harness.sweep(silent)) == 1

    with_harness(database, test)


def test_recordings_and_contexts_that_ended_or_are_parked_are_left_alone(database):
    async def test(harness):
        both = limits(run_unclaimed=PAST, run_silent=PAST)
        await harness.say("recording", context("hi", react=False), ask())
        await harness.say("ended", ask(), finish())
        await harness.say("parked", ask())
        await harness.execute(
            "UPDATE contexts SET parked_version = version + 1, parked_at = now(), parked_error = 'test' "
            "WHERE context_id = 'parked'"
        )
        assert await harness.settle(both) == []
        await harness.say("open", ask())
        assert len(await harness.sweep(both)) == 2

    with_harness(database, test)


def test_two_rules_or_two_timekeepers_that_see_the_same_run_end_it_once(database):
    async def test(harness):
        both = limits(run_unclaimed=PAST, run_silent=PAST)
        await harness.say(CTX, QUESTION)
        first, second = await harness.sweep(both, who="first"), await harness.sweep(both, who="second")
        assert first == second
        # Another frame comes between, so that the third one sees another version.
        await harness.say(CTX, fail(run(), fatal=False))
        third = await harness.sweep(both, who="third")
        for found in (first, second, third):
            harness.publish(found)
        await harness.project()
        became = [await harness.became(one) for one in first] + [await harness.became(one) for one in third]
        assert became == ["applied", "run_over", "run_over", "run_over"]
        assert await harness.value("SELECT duplicate_count FROM contexts") == 2
        assert await harness.value("SELECT count(*) FROM rejected_frames") == 0

    with_harness(database, test)


def test_a_partition_that_is_not_projected_to_its_end_is_not_judged(database):
    async def test(harness):
        await harness.say(CTX, QUESTION)
        mine = harness.log.records[-1].partition
        others = [partition for partition in range(4) if partition != mine]
        assert await harness.sweep(limits(run_unclaimed=PAST, run_silent=PAST), current=others) == []
        assert len(await harness.sweep(limits(run_unclaimed=PAST, run_silent=PAST), current=[mine])) == 2

    with_harness(database, test)


class Broker:
    """A log that fails the first request for its ends if `away`. At the third answer it stops the timekeeper."""

    topic = "llm.frames"
    hidden: frozenset[int] = frozenset()

    def __init__(self, ends, stopping, *, away):
        self._ends, self._stopping, self._away, self._looks = ends, stopping, away, 3
        self.published = []

    async def ends(self, _):
        if self._away:
            self._away = False
            raise BrokerError("no broker answers")
        self._looks -= 1
        if not self._looks:
            self._stopping.set()
        return self._ends

    async def publish(self, settlements):
        self.published += [one.rule for one in settlements]


KEEPER = claims.Registration("keeper", "timekeeper", "timekeeper", "host", 1, 60.0, 1)


async def kept(harness, settings, broker_of, failpoint=failpoints.none):
    """Run the timekeeper until the log stops it. `broker_of` makes the log, given the event to set for that. Returns
    the log."""
    stopping = asyncio.Event()
    broker = broker_of(stopping)
    metrics = TimekeeperMetrics(NO_METRICS)
    keeper = Timekeeper(settings, harness.connection, broker, KEEPER, failpoint, metrics)
    # The timekeeper saw the log an hour ago first: the time before counts as an outage.
    keeper._partitions.note_ends({}, asyncio.get_running_loop().time() - 3_600)
    await keeper.run(stopping)
    return broker


@pytest.mark.regression("worker 46")
@pytest.mark.parametrize(("away", "settled"), [(False, "run_silent"), (True, None)])
def test_an_outage_of_the_broker_is_no_silence_of_the_runs_that_could_not_publish(database, away, settled):
    """Their workers publish what they have once the broker is back, and the timekeeper must not come before them."""
    settings = Settings(timekeeper_every_secs=0.001, timekeeper_run_silent_secs=MINUTE)

    async def test(harness):
        await harness.say(CTX, QUESTION, start(run()), tokens("It is ", run=run()))
        await harness.an_hour_passes(CTX)
        ends = await projections.next_offsets(harness.connection, Broker.topic)
        await claims.register(harness.connection, KEEPER)
        broker = await kept(harness, settings, partial(Broker, ends, away=away))
        assert set(broker.published) == ({settled} if settled else set())

    with_harness(database, test)


@pytest.mark.regression("fault 295")
@pytest.mark.parametrize(("suspended_secs", "settled"), [(1.0, {"run_silent"}), (3_600.0, set())])
def test_a_machine_that_is_suspended_during_a_sweep_makes_no_run_silent(
    database, monkeypatch, suspended_secs, settled
):
    settings = Settings(timekeeper_every_secs=0.001, timekeeper_run_silent_secs=MINUTE)
    clock = {"now": 100.0}
    monkeypatch.setattr(service, "clock_through_suspend", lambda: clock["now"])

    async def suspend(point):
        if point == "after sweep":
            clock["now"] += suspended_secs

    async def test(harness):
        await harness.say(CTX, QUESTION, start(run()), tokens("It is ", run=run()))
        await harness.an_hour_passes(CTX)
        ends = await projections.next_offsets(harness.connection, Broker.topic)
        await claims.register(harness.connection, KEEPER)
        broker = await kept(harness, settings, partial(Broker, ends, away=False), suspend)
        assert set(broker.published) == settled

    with_harness(database, test)


class Halves(Broker):
    """A log in which one partition has no leader, at the first look or at each."""

    def __init__(self, ends, stopping, *, lost, comes_back):
        super().__init__(ends, stopping, away=False)
        self._lost, self._comes_back, self._first = lost, comes_back, True

    async def ends(self, asked):
        ends = dict(await super().ends(asked))
        if self._first or not self._comes_back:
            del ends[self._lost]
        self._first = False
        return ends


@pytest.mark.regression("fault 108")
@pytest.mark.parametrize("comes_back", [True, False])
@pytest.mark.parametrize(("loses_its_own", "settled"), [(False, {"run_silent"}), (True, set())])
def test_a_partition_without_a_leader_is_no_outage_for_the_others(
    database, comes_back, loses_its_own, settled
):
    """The runs of that partition get the time that all runs get after an outage."""
    settings = Settings(timekeeper_every_secs=0.001, timekeeper_run_silent_secs=MINUTE)

    async def test(harness):
        await harness.say(CTX, QUESTION, start(run()), tokens("It is ", run=run()))
        await harness.an_hour_passes(CTX)
        ends = await projections.next_offsets(harness.connection, Broker.topic)
        mine = harness.log.records[-1].partition
        lost = mine if loses_its_own else (mine + 1) % len(ends)
        await claims.register(harness.connection, KEEPER)
        broker = await kept(harness, settings, partial(Halves, ends, lost=lost, comes_back=comes_back))
        assert set(broker.published) == settled

    with_harness(database, test)


@pytest.mark.regression("fault 110")
def test_what_is_requested_when_its_partition_has_caught_up_has_its_whole_time_to_be_taken(
    database, monkeypatch
):
    """The run and the call were stored long before, but their effects were held, so no worker could take them."""
    monkeypatch.setattr(held_effects, "MAX_AGE", timedelta(days=100_000))
    settings = Settings(timekeeper_every_secs=0.001, timekeeper_run_silent_secs=0, timekeeper_call_secs=0)
    called = "calls"

    async def test(harness):
        owned = harness.projecting.owned.values()

        async def hold(one, until):
            one.held_until = until
            await held_statements.hold(
                harness.connection, Broker.topic, one.partition, one.epoch, one.held_until
            )

        class CatchingUp(Broker):
            """A log that the projector has reached when its ends are first asked for."""

            requested = 0

            async def ends(self, asked):
                ends = await super().ends(asked)
                for one in owned:
                    if one.held_until is not None:
                        await hold(one, one.next_offset)
                        self.requested += len(
                            await held_effects.release(
                                harness.projecting.connection, harness.projecting.topics, one
                            )
                        )
                return ends

        for one in owned:
            await hold(one, 1_000_000)
        await harness.say(CTX, QUESTION)
        await harness.say(called, ask(), *committed("a", run=derived.run_id(ContextId(called), 1)))
        for context_id in (CTX, called):
            await harness.an_hour_passes(context_id)
        await claims.register(harness.connection, KEEPER)
        await harness.execute("UPDATE workers SET connected_at = connected_at - interval '1 hour'")
        ends = {one.partition: one.next_offset for one in owned}
        broker = await kept(harness, settings, partial(CatchingUp, ends, away=False))
        assert broker.requested
        assert broker.published == []
        assert await harness.value("SELECT count(*) FROM claims") == 0
        # Judged by the tables alone, both are overdue.
        found = await harness.sweep(limits(run_unclaimed=MINUTE, call_unserved=MINUTE), who="another")
        assert [one.rule for one in found] == ["run_unclaimed", "call_start"]

    with_harness(database, test)

"""Calls past their deadline, calls whose worker is gone, and calls that wait for a person too long."""

import pytest
from tests.support.timekeeping import FAR, PAST, limits, with_harness
from tests.unit.rules.dsl import (
    announce,
    ask,
    begin,
    committed,
    context,
    end,
    finish,
    hear,
    interrupt,
    result,
    start,
    tokens,
)
from tests.unit.rules.test_client_functions import brought

from frameledger import derived
from frameledger.ids import ContextId, Version

CTX = "harness"
MINUTE = 60.0
OVERDUE = limits(call=PAST)


def run(asked: int) -> str:
    return derived.run_id(ContextId(CTX), asked)


def calls(*names, **fields):
    """Returns four frames: the first requests a run, which calls these."""
    return [ask(), *committed(*names, run=run(1), **fields)]


def waiting(call, deadline=None, **fields):
    return begin(call, waiting={"for": "a person", "deadline": deadline}, **fields)


def test_a_call_that_never_started_is_cancelled_at_its_deadline_and_the_model_goes_on(database):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        assert await harness.settle(limits(call=FAR)) == []
        assert await harness.settle(OVERDUE) == [("call_overdue", "applied")]
        assert await harness.call(CTX, "a") == ("cancelled", None)
        # The call had not started, so its cancel requests no run, and no other result waits.
        assert await harness.open_run(CTX) is None
        await harness.say(CTX, begin("a", attempt=1))
        assert (
            await harness.value("SELECT reason FROM frames ORDER BY version DESC LIMIT 1") == "call_forgotten"
        )
        version = await harness.say(CTX, hear("Well?"))
        assert await harness.open_run(CTX) == version

    with_harness(database, test)


@pytest.mark.parametrize("sync", [True, False])
def test_a_safe_call_that_runs_too_long_is_cancelled_and_asks_for_a_run(database, sync):
    async def test(harness):
        await harness.say(CTX, calls("a"), begin("a", sync=sync, attempt=1, safe_to_retry=True))
        assert await harness.settle(OVERDUE) == [("call_overdue", "applied")]
        assert await harness.call(CTX, "a") == ("cancelled", None)
        assert await harness.open_run(CTX) == 6
        assert "CANCELLED" in (await harness.texts(CTX))[-1]

    with_harness(database, test)


@pytest.mark.parametrize("sync", [True, False])
def test_an_unsafe_call_that_runs_too_long_is_ambiguous_and_the_model_is_told_not_to_repeat_it(
    database, sync
):
    async def test(harness):
        await harness.say(CTX, calls("pay"), begin("pay", sync=sync, attempt=1))
        assert await harness.settle(OVERDUE) == [("call_overdue", "applied")]
        status, told = await harness.call(CTX, "pay")
        assert status == "ambiguous"
        assert "It is unknown whether `pay` took effect" in told
        assert "Do not call it again" in (await harness.texts(CTX))[-1]
        assert await harness.open_run(CTX) == 6

    with_harness(database, test)


def test_a_call_keeps_the_deadline_that_it_named(database):
    async def test(harness):
        await harness.say(CTX, calls("long", "short"))
        await harness.say(
            CTX, begin("long", attempt=1, timeout_secs=FAR), begin("short", attempt=1, timeout_secs=1)
        )
        found = await harness.sweep(limits(call=FAR))
        assert [one.frame.tool_call_id for one in found] == ["short"]
        found = await harness.sweep(OVERDUE)
        assert [one.frame.tool_call_id for one in found] == ["short"]
        assert await harness.sweep(limits(call=PAST, call_grace=FAR)) == []

    with_harness(database, test)


def test_the_other_calls_of_its_group_are_still_waited_for(database):
    async def test(harness):
        await harness.say(CTX, calls("a", "b"), begin("a", attempt=1, safe_to_retry=True, timeout_secs=1))
        await harness.say(CTX, begin("b", attempt=1))
        assert await harness.settle(limits(call=FAR)) == [("call_overdue", "applied")]
        assert await harness.open_run(CTX) is None
        await harness.say(CTX, result("b", "done", attempt=1))
        assert await harness.open_run(CTX) == 8

    with_harness(database, test)


def test_calls_of_an_open_run_end_with_it_and_those_of_no_run_by_their_deadline(database):
    async def test(harness):
        await harness.say(CTX, ask(), start(run(1)), announce("a", run=run(1)))
        assert await harness.sweep(OVERDUE) == []
        await harness.say("other", announce("b"))
        assert await harness.settle(OVERDUE) == [("call_overdue", "applied")]
        assert await harness.call("other", "b") == ("cancelled", None)

    with_harness(database, test)


def test_a_call_in_the_queue_is_due_too_and_the_next_one_is_dispatched(database):
    async def test(harness):
        await harness.say(CTX, calls("a", "b", run_in_parallel=False), begin("a", attempt=1, timeout_secs=1))
        assert await harness.settle(limits(call=FAR)) == [("call_overdue", "applied")]
        assert await harness.call(CTX, "b") == ("dispatched", None)

    with_harness(database, test)


async def happened(harness, column, call, when):
    """Set a time of a call. The times of the log are long past."""
    await harness.execute(f"UPDATE tool_calls SET {column} = {when} WHERE tool_call_id = %s", call)


NOW, LONG_AGO = "now()", "requested_at"
MINUTES = limits(call=50 * MINUTE)


@pytest.mark.regression("repair 1")
def test_the_deadline_of_a_call_is_counted_from_its_dispatch_and_not_from_its_announcement(database):
    async def test(harness):
        await harness.say(
            CTX, calls("a", "b", run_in_parallel=False), begin("a", attempt=1, timeout_secs=FAR)
        )
        # The first call has a deadline of its own, and the other waits in the queue behind it.
        assert await harness.sweep(MINUTES) == []
        await harness.say(CTX, result("a", "done", attempt=1))
        assert await harness.call(CTX, "b") == ("dispatched", None)
        await happened(harness, "dispatched_at", "b", NOW)
        assert await harness.sweep(MINUTES) == []
        await happened(harness, "dispatched_at", "b", LONG_AGO)
        assert await harness.settle(MINUTES) == [("call_overdue", "applied")]
        assert await harness.call(CTX, "b") == ("cancelled", None)

    with_harness(database, test)


@pytest.mark.regression("repair 1")
def test_a_call_of_ones_own_model_is_due_by_its_start_and_in_its_queue_by_the_one_before(database):
    async def test(harness):
        await harness.say(CTX, announce("a", "b", "c", run_in_parallel=False), begin("a"))
        await happened(harness, "started_at", "a", NOW)
        assert await harness.sweep(MINUTES) == []
        # Its program is gone, so the call becomes overdue.
        await happened(harness, "started_at", "a", LONG_AGO)
        assert await harness.settle(MINUTES) == [("call_overdue", "applied")]
        assert (await harness.call(CTX, "a"))[0] == "ambiguous"
        await happened(harness, "settled_at", "a", NOW)
        assert await harness.sweep(MINUTES) == []
        await happened(harness, "settled_at", "a", LONG_AGO)
        assert await harness.settle(MINUTES) == [("call_overdue", "applied")] * 2
        assert [await harness.call(CTX, call) for call in ("b", "c")] == [("cancelled", None)] * 2

    with_harness(database, test)


@pytest.mark.parametrize(("safe", "status"), [(True, "cancelled"), (False, "ambiguous")])
def test_what_an_interruption_cancelled_asks_for_nothing_when_it_is_overdue(database, safe, status):
    async def test(harness):
        await harness.say(CTX, calls("a"), begin("a", attempt=1, safe_to_retry=safe), interrupt())
        assert await harness.settle(OVERDUE) == [("call_overdue", "applied")]
        assert (await harness.call(CTX, "a"))[0] == status
        assert await harness.open_run(CTX) is None

    with_harness(database, test)


@pytest.mark.parametrize(("safe", "status"), [(True, "cancelled"), (False, "ambiguous")])
def test_an_interrupted_call_is_ended_once_its_worker_is_gone(database, safe, status):
    async def test(harness):
        gone = limits(interrupted_call=MINUTE / 2)
        await harness.lives("worker")
        await harness.say(CTX, calls("a"))
        await harness.claimed_call(CTX, "a", "worker")
        await harness.say(CTX, begin("a", attempt=1, worker="worker", safe_to_retry=safe), interrupt())
        await harness.an_hour_passes(CTX)
        assert await harness.sweep(gone) == []
        await harness.dies("worker")
        assert await harness.sweep(gone, may_judge=False) == []
        assert await harness.settle(gone) == [("call_abandoned", "applied")]
        assert (await harness.call(CTX, "a"))[0] == status
        assert await harness.open_run(CTX) is None
        version = await harness.say(CTX, hear("Well?"))
        assert await harness.open_run(CTX) == version

    with_harness(database, test)


def test_an_interrupted_call_that_another_worker_took_over_is_that_workers(database):
    async def test(harness):
        await harness.lives("dead")
        await harness.say(CTX, calls("a"))
        await harness.claimed_call(CTX, "a", "dead")
        await harness.say(CTX, begin("a", attempt=1, worker="dead", safe_to_retry=True), interrupt())
        await harness.an_hour_passes(CTX)
        await harness.dies("dead")
        await harness.lives("alive")
        await harness.claimed_call(CTX, "a", "alive", attempt=2)
        assert await harness.sweep(limits(interrupted_call=MINUTE / 2)) == []

    with_harness(database, test)


def test_calls_that_were_not_interrupted_or_not_claimed_are_not_abandoned(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, calls("a", "b"))
        await harness.claimed_call(CTX, "a", "worker")
        await harness.say(CTX, begin("a", sync=False, attempt=1, worker="worker"), begin("b"), interrupt())
        await harness.an_hour_passes(CTX)
        await harness.dies("worker")
        assert await harness.sweep(limits(interrupted_call=PAST)) == []

    with_harness(database, test)


LOST = limits(lost_call=MINUTE / 2)


@pytest.mark.regression("journey 12", "trial C5")
def test_a_call_that_a_dead_worker_had_begun_is_ambiguous_once_its_lease_is_over(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, calls("a", "b", "c"))
        for call in ("a", "b"):
            await harness.claimed_call(CTX, call, "worker")
        await harness.say(
            CTX,
            begin("a", attempt=1, worker="worker"),
            begin("b", attempt=1, worker="worker", safe_to_retry=True),
            begin("c"),
        )
        await harness.an_hour_passes(CTX)
        assert await harness.sweep(LOST) == []
        await harness.dies("worker")
        assert await harness.sweep(LOST, may_judge=False) == []
        assert await harness.settle(LOST) == [("call_lost", "applied")]
        found = [(await harness.call(CTX, call))[0] for call in ("a", "b", "c")]
        assert found == ["ambiguous", "running", "running"], (
            "a safe call may be run again; c is somebody else's"
        )

    with_harness(database, test)


@pytest.mark.regression("worker 20")
def test_calls_that_a_dead_worker_ran_without_a_claim_are_ended_like_those_under_one(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, ask())
        await harness.say(CTX, announce("a", "b", "c", "d"))
        await harness.say(CTX, begin("c", worker="worker"), interrupt())
        await harness.say(CTX, announce("a", "b", "d"))
        await harness.say(
            CTX,
            begin("a", worker="worker"),
            begin("b", worker="worker", safe_to_retry=True),
            begin("d", worker="somebody"),
        )
        on = limits(lost_call=MINUTE / 2, interrupted_call=MINUTE / 2)
        await harness.an_hour_passes(CTX)
        assert await harness.sweep(on) == []
        await harness.dies("worker")
        assert await harness.sweep(on, may_judge=False) == []
        found = await harness.settle(on)
        assert sorted(found) == [("call_abandoned", "applied"), *[("call_lost", "applied")] * 2]
        statuses = [(await harness.call(CTX, call))[0] for call in ("a", "b", "c", "d")]
        assert statuses == ["ambiguous", "cancelled", "ambiguous", "running"], "nobody knows the worker of d"

    with_harness(database, test)


@pytest.mark.regression("worker 47")
def test_calls_in_the_queue_of_a_dead_worker_are_cancelled_with_the_one_that_it_ran(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, announce("a", "b", "c", run_in_parallel=False), begin("a", worker="worker"))
        # None of these calls has started, so the tables do not say which worker has them.
        await harness.say(CTX, announce("d", run_in_parallel=False))
        on = limits(lost_call=MINUTE / 2)
        await harness.an_hour_passes(CTX)
        assert await harness.sweep(on) == []
        await harness.dies("worker")
        assert await harness.sweep(on, may_judge=False) == []
        assert await harness.settle(on) == [("call_lost", "applied")] * 3
        found = [(await harness.call(CTX, call))[0] for call in ("a", "b", "c", "d")]
        assert found == ["ambiguous", "cancelled", "cancelled", "announced"]
        assert await harness.sweep(on) == []

    with_harness(database, test)


@pytest.mark.regression("trial C5")
def test_a_call_whose_claim_the_database_has_lost_is_ambiguous_a_lease_later(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, calls("a"), begin("a", attempt=1, worker="worker"))
        assert await harness.sweep(LOST) == []
        await harness.an_hour_passes(CTX)
        assert await harness.settle(LOST) == [("call_lost", "applied")]
        assert (await harness.call(CTX, "a"))[0] == "ambiguous"

    with_harness(database, test)


def test_a_call_that_a_living_worker_took_over_is_that_workers(database):
    async def test(harness):
        await harness.lives("alive")
        await harness.say(CTX, calls("a"), begin("a", attempt=1, worker="dead"))
        await harness.claimed_call(CTX, "a", "alive", attempt=2)
        await harness.an_hour_passes(CTX)
        assert await harness.sweep(LOST) == []

    with_harness(database, test)


def test_a_call_that_waits_for_a_person_has_no_deadline_but_its_own(database):
    async def test(harness):
        await harness.say(CTX, calls("past", "future", "never", "unread"))
        await harness.say(
            CTX,
            waiting("past", "2026-01-01T00:00:00Z", attempt=1, timeout_secs=1),
            waiting("future", "2100-01-01T00:00:00Z", attempt=1, timeout_secs=1),
            waiting("never", attempt=1, timeout_secs=1),
            waiting("unread", "some day", attempt=1, timeout_secs=1),
        )
        assert await harness.sweep(limits(call=PAST, interrupted_call=PAST, waiting_calls=False)) == []
        assert await harness.sweep(limits(waiting_calls=True, call_grace=FAR)) == []
        assert await harness.settle(limits(waiting_calls=True)) == [("waiting_overdue", "applied")]
        assert await harness.call(CTX, "past") == ("cancelled", None)
        # It requests a run once the other calls of its group have settled.
        assert await harness.open_run(CTX) is None
        await harness.say(CTX, [result(call, None) for call in ("future", "never", "unread")])
        assert await harness.open_run(CTX) == 12

    with_harness(database, test)


LEFT = limits(client_call=MINUTE)


@pytest.mark.rule("RA5.client")
def test_a_call_whose_client_does_not_come_back_is_cancelled_and_asks_for_no_run(database):
    async def test(harness):
        painting = [
            brought("paint"),
            ask(),
            committed("paint", run=derived.run_id(ContextId(CTX), Version(2))),
        ]
        version = await harness.say(CTX, painting)
        assert await harness.sweep(limits(client_call=FAR)) == []
        assert await harness.sweep(LEFT) == [], "it was heard of a moment ago, however old the log is"
        await harness.an_hour_passes(CTX)
        assert await harness.sweep(limits(call=PAST, interrupted_call=PAST, waiting_calls=True)) == []
        assert await harness.sweep(LEFT, current=()) == []
        [one] = await harness.sweep(LEFT)
        assert [one] == await harness.sweep(LEFT, who="another")
        assert await harness.settle(LEFT) == [("call_left", "applied")]
        assert await harness.settle(LEFT) == []
        assert await harness.call(CTX, "paint") == ("cancelled", None)
        assert await harness.open_run(CTX) is None
        # Another timekeeper that finds the same publishes the same frame, which counts once.
        harness.publish([one])
        await harness.project()
        assert await harness.value("SELECT version FROM contexts WHERE context_id = %s", CTX) == version + 1
        await harness.say(CTX, hear("Are you there?"))
        assert await harness.open_run(CTX) == version + 2

    with_harness(database, test)


def test_a_call_whose_client_is_heard_of_waits_on_and_so_does_one_that_waits_for_a_person(database):
    async def test(harness):
        asked = [brought("paint", served=("ask",)), ask()]
        run = derived.run_id(ContextId(CTX), Version(2))
        await harness.say(CTX, asked, committed("paint", "ask", run=run), waiting("ask", attempt=1))
        await harness.an_hour_passes(CTX)
        assert [one.frame.tool_call_id for one in await harness.sweep(LEFT)] == ["paint"]
        await harness.say(CTX, hear("I am still painting."))
        assert await harness.sweep(LEFT) == []

    with_harness(database, test)


def test_a_call_that_waits_is_left_alone_when_an_interruption_owes_it_a_cancel(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, calls("a"))
        await harness.claimed_call(CTX, "a", "worker")
        await harness.say(CTX, waiting("a", attempt=1, worker="worker"), interrupt())
        await harness.an_hour_passes(CTX)
        await harness.dies("worker")
        assert await harness.sweep(limits(call=PAST, interrupted_call=PAST, waiting_calls=True)) == []

    with_harness(database, test)


def test_a_frame_for_a_call_that_is_over_settles_no_later_call_of_that_id(database):
    async def test(harness):
        await harness.say(CTX, calls("safe", "pay"))
        await harness.say(CTX, begin("safe", attempt=1, safe_to_retry=True), begin("pay", attempt=1))
        found = await harness.sweep(OVERDUE)
        await harness.say(CTX, result("safe", 1, attempt=1), result("pay", 1, attempt=1), end(run(8)))
        opened = await harness.open_run(CTX)
        await harness.say(CTX, committed("safe", "pay", run=run(opened)))
        await harness.say(CTX, begin("safe", attempt=1, safe_to_retry=True), begin("pay", attempt=1))
        harness.publish(found)
        await harness.project()
        assert [await harness.became(one) for one in found] == ["target_over", "target_over"]
        assert [(await harness.call(CTX, name))[0] for name in ("safe", "pay")] == ["running", "running"]

    with_harness(database, test)


def test_recordings_and_contexts_that_ended_or_are_parked_are_left_alone(database):
    async def test(harness):
        all_rules = limits(call=PAST, waiting_calls=True)
        late = waiting("b", "2026-01-01T00:00:00Z")
        await harness.say("recording", context("hi", react=False), begin("a"), late)
        await harness.say("ended", ask(), finish(), begin("a"), late)
        await harness.say("parked", begin("a"), late)
        await harness.execute(
            "UPDATE contexts SET parked_version = version + 1, parked_at = now(), parked_error = 'test' "
            "WHERE context_id = 'parked'"
        )
        assert await harness.sweep(all_rules) == []
        await harness.say("open", begin("a"), late)
        assert len(await harness.sweep(all_rules)) == 2

    with_harness(database, test)


def test_two_timekeepers_end_a_call_once(database):
    async def test(harness):
        await harness.say(CTX, calls("pay"), begin("pay", attempt=1))
        first, second = await harness.sweep(OVERDUE, who="first"), await harness.sweep(OVERDUE, who="second")
        assert first == second
        await harness.say(CTX, tokens("x"))
        third = await harness.sweep(OVERDUE, who="third")
        for found in (first, second, third):
            harness.publish(found)
        await harness.project()
        assert [await harness.became(one) for one in (*first, *third)] == ["applied", "target_over"]
        assert await harness.value("SELECT duplicate_count FROM contexts") == 1
        assert await harness.value("SELECT count(*) FROM rejected_frames") == 0

    with_harness(database, test)


@pytest.mark.regression("worker 53")
@pytest.mark.parametrize("secs", [1e12, 1.7e308])
def test_a_deadline_beyond_all_times_is_never_reached_and_holds_up_no_other_call(database, secs):
    async def test(harness):
        await harness.say(CTX, calls("for ever", "short"))
        await harness.say(CTX, begin("for ever", attempt=1, timeout_secs=secs))
        await harness.say(CTX, begin("short", attempt=1, timeout_secs=1))
        found = await harness.sweep(limits(call=FAR))
        assert [one.frame.tool_call_id for one in found] == ["short"]

    with_harness(database, test)

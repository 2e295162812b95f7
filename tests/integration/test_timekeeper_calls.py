"""Calls past their deadline, calls whose worker is gone, and calls that wait for a person too long."""

import pytest
from tests.support.timekeeping import FAR, PAST, at_desk, limits
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

CTX = "desk"
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
    async def test(desk):
        await desk.say(CTX, calls("a"))
        assert await desk.settle(limits(call=FAR)) == []
        assert await desk.settle(OVERDUE) == [("call_overdue", "applied")]
        assert await desk.call(CTX, "a") == ("cancelled", None)
        # The call had not started, so its cancel requests no run, and no other result waits.
        assert await desk.open_run(CTX) is None
        await desk.say(CTX, begin("a", attempt=1))
        assert await desk.value("SELECT reason FROM frames ORDER BY version DESC LIMIT 1") == "call_forgotten"
        version = await desk.say(CTX, hear("Well?"))
        assert await desk.open_run(CTX) == version

    at_desk(database, test)


@pytest.mark.parametrize("sync", [True, False])
def test_a_safe_call_that_runs_too_long_is_cancelled_and_asks_for_a_run(database, sync):
    async def test(desk):
        await desk.say(CTX, calls("a"), begin("a", sync=sync, attempt=1, safe_to_retry=True))
        assert await desk.settle(OVERDUE) == [("call_overdue", "applied")]
        assert await desk.call(CTX, "a") == ("cancelled", None)
        assert await desk.open_run(CTX) == 6
        assert "CANCELLED" in (await desk.texts(CTX))[-1]

    at_desk(database, test)


@pytest.mark.parametrize("sync", [True, False])
def test_an_unsafe_call_that_runs_too_long_is_ambiguous_and_the_model_is_told_not_to_repeat_it(
    database, sync
):
    async def test(desk):
        await desk.say(CTX, calls("pay"), begin("pay", sync=sync, attempt=1))
        assert await desk.settle(OVERDUE) == [("call_overdue", "applied")]
        status, told = await desk.call(CTX, "pay")
        assert status == "ambiguous"
        assert "It is unknown whether `pay` took effect" in told
        assert "Do not call it again" in (await desk.texts(CTX))[-1]
        assert await desk.open_run(CTX) == 6

    at_desk(database, test)


def test_a_call_keeps_the_deadline_that_it_named(database):
    async def test(desk):
        await desk.say(CTX, calls("long", "short"))
        await desk.say(
            CTX, begin("long", attempt=1, timeout_secs=FAR), begin("short", attempt=1, timeout_secs=1)
        )
        found = await desk.look(limits(call=FAR))
        assert [one.frame.tool_call_id for one in found] == ["short"]
        found = await desk.look(OVERDUE)
        assert [one.frame.tool_call_id for one in found] == ["short"]
        assert await desk.look(limits(call=PAST, call_grace=FAR)) == []

    at_desk(database, test)


def test_the_other_calls_of_its_group_are_still_waited_for(database):
    async def test(desk):
        await desk.say(CTX, calls("a", "b"), begin("a", attempt=1, safe_to_retry=True, timeout_secs=1))
        await desk.say(CTX, begin("b", attempt=1))
        assert await desk.settle(limits(call=FAR)) == [("call_overdue", "applied")]
        assert await desk.open_run(CTX) is None
        await desk.say(CTX, result("b", "done", attempt=1))
        assert await desk.open_run(CTX) == 8

    at_desk(database, test)


def test_calls_of_an_open_run_end_with_it_and_those_of_no_run_by_their_deadline(database):
    async def test(desk):
        await desk.say(CTX, ask(), start(run(1)), announce("a", run=run(1)))
        assert await desk.look(OVERDUE) == []
        await desk.say("other", announce("b"))
        assert await desk.settle(OVERDUE) == [("call_overdue", "applied")]
        assert await desk.call("other", "b") == ("cancelled", None)

    at_desk(database, test)


def test_a_call_in_the_queue_is_due_too_and_the_next_one_is_dispatched(database):
    async def test(desk):
        await desk.say(CTX, calls("a", "b", run_in_parallel=False), begin("a", attempt=1, timeout_secs=1))
        assert await desk.settle(limits(call=FAR)) == [("call_overdue", "applied")]
        assert await desk.call(CTX, "b") == ("dispatched", None)

    at_desk(database, test)


async def happened(desk, column, call, when):
    """Set a time of a call. The times of the log are long past."""
    await desk.execute(f"UPDATE tool_calls SET {column} = {when} WHERE tool_call_id = %s", call)


NOW, LONG_AGO = "now()", "requested_at"
MINUTES = limits(call=50 * MINUTE)


@pytest.mark.regression("repair 1")
def test_the_deadline_of_a_call_is_counted_from_its_dispatch_and_not_from_its_announcement(database):
    async def test(desk):
        await desk.say(CTX, calls("a", "b", run_in_parallel=False), begin("a", attempt=1, timeout_secs=FAR))
        # The first call has a deadline of its own, and the other waits in the queue behind it.
        assert await desk.look(MINUTES) == []
        await desk.say(CTX, result("a", "done", attempt=1))
        assert await desk.call(CTX, "b") == ("dispatched", None)
        await happened(desk, "dispatched_at", "b", NOW)
        assert await desk.look(MINUTES) == []
        await happened(desk, "dispatched_at", "b", LONG_AGO)
        assert await desk.settle(MINUTES) == [("call_overdue", "applied")]
        assert await desk.call(CTX, "b") == ("cancelled", None)

    at_desk(database, test)


@pytest.mark.regression("repair 1")
def test_a_call_of_ones_own_model_is_due_by_its_start_and_in_its_queue_by_the_one_before(database):
    async def test(desk):
        await desk.say(CTX, announce("a", "b", "c", run_in_parallel=False), begin("a"))
        await happened(desk, "started_at", "a", NOW)
        assert await desk.look(MINUTES) == []
        # Its program is gone, so the call becomes overdue.
        await happened(desk, "started_at", "a", LONG_AGO)
        assert await desk.settle(MINUTES) == [("call_overdue", "applied")]
        assert (await desk.call(CTX, "a"))[0] == "ambiguous"
        await happened(desk, "settled_at", "a", NOW)
        assert await desk.look(MINUTES) == []
        await happened(desk, "settled_at", "a", LONG_AGO)
        assert await desk.settle(MINUTES) == [("call_overdue", "applied")] * 2
        assert [await desk.call(CTX, call) for call in ("b", "c")] == [("cancelled", None)] * 2

    at_desk(database, test)


@pytest.mark.parametrize(("safe", "status"), [(True, "cancelled"), (False, "ambiguous")])
def test_what_an_interruption_cancelled_asks_for_nothing_when_it_is_overdue(database, safe, status):
    async def test(desk):
        await desk.say(CTX, calls("a"), begin("a", attempt=1, safe_to_retry=safe), interrupt())
        assert await desk.settle(OVERDUE) == [("call_overdue", "applied")]
        assert (await desk.call(CTX, "a"))[0] == status
        assert await desk.open_run(CTX) is None

    at_desk(database, test)


@pytest.mark.parametrize(("safe", "status"), [(True, "cancelled"), (False, "ambiguous")])
def test_an_interrupted_call_is_ended_once_its_worker_is_gone(database, safe, status):
    async def test(desk):
        gone = limits(interrupted_call=MINUTE / 2)
        await desk.lives("worker")
        await desk.say(CTX, calls("a"))
        await desk.claimed_call(CTX, "a", "worker")
        await desk.say(CTX, begin("a", attempt=1, worker="worker", safe_to_retry=safe), interrupt())
        await desk.an_hour_passes(CTX)
        assert await desk.look(gone) == []
        await desk.dies("worker")
        assert await desk.look(gone, may_judge=False) == []
        assert await desk.settle(gone) == [("call_abandoned", "applied")]
        assert (await desk.call(CTX, "a"))[0] == status
        assert await desk.open_run(CTX) is None
        version = await desk.say(CTX, hear("Well?"))
        assert await desk.open_run(CTX) == version

    at_desk(database, test)


def test_an_interrupted_call_that_another_worker_took_over_is_that_workers(database):
    async def test(desk):
        await desk.lives("dead")
        await desk.say(CTX, calls("a"))
        await desk.claimed_call(CTX, "a", "dead")
        await desk.say(CTX, begin("a", attempt=1, worker="dead", safe_to_retry=True), interrupt())
        await desk.an_hour_passes(CTX)
        await desk.dies("dead")
        await desk.lives("alive")
        await desk.claimed_call(CTX, "a", "alive", attempt=2)
        assert await desk.look(limits(interrupted_call=MINUTE / 2)) == []

    at_desk(database, test)


def test_calls_that_were_not_interrupted_or_not_claimed_are_not_abandoned(database):
    async def test(desk):
        await desk.lives("worker")
        await desk.say(CTX, calls("a", "b"))
        await desk.claimed_call(CTX, "a", "worker")
        await desk.say(CTX, begin("a", sync=False, attempt=1, worker="worker"), begin("b"), interrupt())
        await desk.an_hour_passes(CTX)
        await desk.dies("worker")
        assert await desk.look(limits(interrupted_call=PAST)) == []

    at_desk(database, test)


LOST = limits(lost_call=MINUTE / 2)


@pytest.mark.regression("journey 12", "trial C5")
def test_a_call_that_a_dead_worker_had_begun_is_ambiguous_once_its_lease_is_over(database):
    async def test(desk):
        await desk.lives("worker")
        await desk.say(CTX, calls("a", "b", "c"))
        for call in ("a", "b"):
            await desk.claimed_call(CTX, call, "worker")
        await desk.say(
            CTX,
            begin("a", attempt=1, worker="worker"),
            begin("b", attempt=1, worker="worker", safe_to_retry=True),
            begin("c"),
        )
        await desk.an_hour_passes(CTX)
        assert await desk.look(LOST) == []
        await desk.dies("worker")
        assert await desk.look(LOST, may_judge=False) == []
        assert await desk.settle(LOST) == [("call_lost", "applied")]
        found = [(await desk.call(CTX, call))[0] for call in ("a", "b", "c")]
        assert found == ["ambiguous", "running", "running"], (
            "a safe call may be run again; c is somebody else's"
        )

    at_desk(database, test)


@pytest.mark.regression("worker 20")
def test_calls_that_a_dead_worker_ran_without_a_claim_are_ended_like_those_under_one(database):
    async def test(desk):
        await desk.lives("worker")
        await desk.say(CTX, ask())
        await desk.say(CTX, announce("a", "b", "c", "d"))
        await desk.say(CTX, begin("c", worker="worker"), interrupt())
        await desk.say(CTX, announce("a", "b", "d"))
        await desk.say(
            CTX,
            begin("a", worker="worker"),
            begin("b", worker="worker", safe_to_retry=True),
            begin("d", worker="somebody"),
        )
        on = limits(lost_call=MINUTE / 2, interrupted_call=MINUTE / 2)
        await desk.an_hour_passes(CTX)
        assert await desk.look(on) == []
        await desk.dies("worker")
        assert await desk.look(on, may_judge=False) == []
        found = await desk.settle(on)
        assert sorted(found) == [("call_abandoned", "applied"), *[("call_lost", "applied")] * 2]
        statuses = [(await desk.call(CTX, call))[0] for call in ("a", "b", "c", "d")]
        assert statuses == ["ambiguous", "cancelled", "ambiguous", "running"], "nobody knows the worker of d"

    at_desk(database, test)


@pytest.mark.regression("worker 47")
def test_calls_in_the_queue_of_a_dead_worker_are_cancelled_with_the_one_that_it_ran(database):
    async def test(desk):
        await desk.lives("worker")
        await desk.say(CTX, announce("a", "b", "c", run_in_parallel=False), begin("a", worker="worker"))
        # None of these calls has started, so the tables do not say which worker has them.
        await desk.say(CTX, announce("d", run_in_parallel=False))
        on = limits(lost_call=MINUTE / 2)
        await desk.an_hour_passes(CTX)
        assert await desk.look(on) == []
        await desk.dies("worker")
        assert await desk.look(on, may_judge=False) == []
        assert await desk.settle(on) == [("call_lost", "applied")] * 3
        found = [(await desk.call(CTX, call))[0] for call in ("a", "b", "c", "d")]
        assert found == ["ambiguous", "cancelled", "cancelled", "announced"]
        assert await desk.look(on) == []

    at_desk(database, test)


@pytest.mark.regression("trial C5")
def test_a_call_whose_claim_the_database_has_lost_is_ambiguous_a_lease_later(database):
    async def test(desk):
        await desk.lives("worker")
        await desk.say(CTX, calls("a"), begin("a", attempt=1, worker="worker"))
        assert await desk.look(LOST) == []
        await desk.an_hour_passes(CTX)
        assert await desk.settle(LOST) == [("call_lost", "applied")]
        assert (await desk.call(CTX, "a"))[0] == "ambiguous"

    at_desk(database, test)


def test_a_call_that_a_living_worker_took_over_is_that_workers(database):
    async def test(desk):
        await desk.lives("alive")
        await desk.say(CTX, calls("a"), begin("a", attempt=1, worker="dead"))
        await desk.claimed_call(CTX, "a", "alive", attempt=2)
        await desk.an_hour_passes(CTX)
        assert await desk.look(LOST) == []

    at_desk(database, test)


def test_a_call_that_waits_for_a_person_has_no_deadline_but_its_own(database):
    async def test(desk):
        await desk.say(CTX, calls("past", "future", "never", "unread"))
        await desk.say(
            CTX,
            waiting("past", "2026-01-01T00:00:00Z", attempt=1, timeout_secs=1),
            waiting("future", "2100-01-01T00:00:00Z", attempt=1, timeout_secs=1),
            waiting("never", attempt=1, timeout_secs=1),
            waiting("unread", "some day", attempt=1, timeout_secs=1),
        )
        assert await desk.look(limits(call=PAST, interrupted_call=PAST, waiting_calls=False)) == []
        assert await desk.look(limits(waiting_calls=True, call_grace=FAR)) == []
        assert await desk.settle(limits(waiting_calls=True)) == [("waiting_overdue", "applied")]
        assert await desk.call(CTX, "past") == ("cancelled", None)
        # It requests a run once the other calls of its group have settled.
        assert await desk.open_run(CTX) is None
        await desk.say(CTX, [result(call, None) for call in ("future", "never", "unread")])
        assert await desk.open_run(CTX) == 12

    at_desk(database, test)


LEFT = limits(client_call=MINUTE)


@pytest.mark.rule("RA5.client")
def test_a_call_whose_client_does_not_come_back_is_cancelled_and_asks_for_no_run(database):
    async def test(desk):
        painting = [
            brought("paint"),
            ask(),
            committed("paint", run=derived.run_id(ContextId(CTX), Version(2))),
        ]
        version = await desk.say(CTX, painting)
        assert await desk.look(limits(client_call=FAR)) == []
        assert await desk.look(LEFT) == [], "it was heard of a moment ago, however old the log is"
        await desk.an_hour_passes(CTX)
        assert await desk.look(limits(call=PAST, interrupted_call=PAST, waiting_calls=True)) == []
        assert await desk.look(LEFT, current=()) == []
        [one] = await desk.look(LEFT)
        assert [one] == await desk.look(LEFT, who="another")
        assert await desk.settle(LEFT) == [("call_left", "applied")]
        assert await desk.settle(LEFT) == []
        assert await desk.call(CTX, "paint") == ("cancelled", None)
        assert await desk.open_run(CTX) is None
        # Another timekeeper that finds the same publishes the same frame, which counts once.
        desk.publish([one])
        await desk.project()
        assert await desk.value("SELECT version FROM contexts WHERE context_id = %s", CTX) == version + 1
        await desk.say(CTX, hear("Are you there?"))
        assert await desk.open_run(CTX) == version + 2

    at_desk(database, test)


def test_a_call_whose_client_is_heard_of_waits_on_and_so_does_one_that_waits_for_a_person(database):
    async def test(desk):
        asked = [brought("paint", served=("ask",)), ask()]
        run = derived.run_id(ContextId(CTX), Version(2))
        await desk.say(CTX, asked, committed("paint", "ask", run=run), waiting("ask", attempt=1))
        await desk.an_hour_passes(CTX)
        assert [one.frame.tool_call_id for one in await desk.look(LEFT)] == ["paint"]
        await desk.say(CTX, hear("I am still painting."))
        assert await desk.look(LEFT) == []

    at_desk(database, test)


def test_a_call_that_waits_is_left_alone_when_an_interruption_owes_it_a_cancel(database):
    async def test(desk):
        await desk.lives("worker")
        await desk.say(CTX, calls("a"))
        await desk.claimed_call(CTX, "a", "worker")
        await desk.say(CTX, waiting("a", attempt=1, worker="worker"), interrupt())
        await desk.an_hour_passes(CTX)
        await desk.dies("worker")
        assert await desk.look(limits(call=PAST, interrupted_call=PAST, waiting_calls=True)) == []

    at_desk(database, test)


def test_a_frame_for_a_call_that_is_over_settles_no_later_call_of_that_id(database):
    async def test(desk):
        await desk.say(CTX, calls("safe", "pay"))
        await desk.say(CTX, begin("safe", attempt=1, safe_to_retry=True), begin("pay", attempt=1))
        found = await desk.look(OVERDUE)
        await desk.say(CTX, result("safe", 1, attempt=1), result("pay", 1, attempt=1), end(run(8)))
        opened = await desk.open_run(CTX)
        await desk.say(CTX, committed("safe", "pay", run=run(opened)))
        await desk.say(CTX, begin("safe", attempt=1, safe_to_retry=True), begin("pay", attempt=1))
        desk.publish(found)
        await desk.project()
        assert [await desk.became(one) for one in found] == ["target_over", "target_over"]
        assert [(await desk.call(CTX, name))[0] for name in ("safe", "pay")] == ["running", "running"]

    at_desk(database, test)


def test_recordings_and_contexts_that_ended_or_are_parked_are_left_alone(database):
    async def test(desk):
        all_rules = limits(call=PAST, waiting_calls=True)
        late = waiting("b", "2026-01-01T00:00:00Z")
        await desk.say("recording", context("hi", react=False), begin("a"), late)
        await desk.say("ended", ask(), finish(), begin("a"), late)
        await desk.say("parked", begin("a"), late)
        await desk.execute(
            "UPDATE contexts SET parked_version = version + 1, parked_at = now(), parked_error = 'test' "
            "WHERE context_id = 'parked'"
        )
        assert await desk.look(all_rules) == []
        await desk.say("open", begin("a"), late)
        assert len(await desk.look(all_rules)) == 2

    at_desk(database, test)


def test_two_timekeepers_end_a_call_once(database):
    async def test(desk):
        await desk.say(CTX, calls("pay"), begin("pay", attempt=1))
        first, second = await desk.look(OVERDUE, who="first"), await desk.look(OVERDUE, who="second")
        assert first == second
        await desk.say(CTX, tokens("x"))
        third = await desk.look(OVERDUE, who="third")
        for found in (first, second, third):
            desk.publish(found)
        await desk.project()
        assert [await desk.became(one) for one in (*first, *third)] == ["applied", "target_over"]
        assert await desk.value("SELECT duplicate_count FROM contexts") == 1
        assert await desk.value("SELECT count(*) FROM rejected_frames") == 0

    at_desk(database, test)


@pytest.mark.regression("worker 53")
@pytest.mark.parametrize("secs", [1e12, 1.7e308])
def test_a_deadline_beyond_all_times_is_never_reached_and_holds_up_no_other_call(database, secs):
    async def test(desk):
        await desk.say(CTX, calls("for ever", "short"))
        await desk.say(CTX, begin("for ever", attempt=1, timeout_secs=secs))
        await desk.say(CTX, begin("short", attempt=1, timeout_secs=1))
        found = await desk.look(limits(call=FAR))
        assert [one.frame.tool_call_id for one in found] == ["short"]

    at_desk(database, test)

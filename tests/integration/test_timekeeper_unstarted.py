"""Calls that no worker starts are claimed, nominally started and answered, once, whichever process dies in between."""

import psycopg
import pytest
from tests.support.timekeeping import FAR, PAST, limits, with_harness
from tests.unit.rules.dsl import ask, begin, committed, context, end, finish, interrupt, result, start

from frameledger import derived
from frameledger.frames import FunctionCallFromLLM, FunctionCallsStartedFrame
from frameledger.ids import ContextId
from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE

CTX = "harness"
MINUTE = 60.0
NOBODY = limits(call_unserved=PAST, call_unstarted=PAST)
NOT_AVAILABLE = MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE.format(function_name="a")


def calls(*names, of=CTX, **fields):
    """Returns four frames of a context: the first requests a run, which calls these."""
    return [ask(), *committed(*names, run=run_id(of), **fields)]


def run_id(context_id):
    """The run that the first frame of a context asked for."""
    return derived.run_id(ContextId(context_id), 1)


def cancelling(function, *, builtin):
    """The announcement of one call of that name."""
    call = FunctionCallFromLLM(
        tool_call_id=f"{function}-{builtin}", function_name=function, arguments={}, builtin=builtin
    )
    return FunctionCallsStartedFrame(function_calls=[call], run_id=run_id(CTX))


async def claim_of(harness, call="a"):
    """The worker that has claimed the call, its attempt, and how the claim ended."""
    return await harness.row("SELECT worker_id, attempt, finish FROM claims WHERE tool_call_id = %s", call)


def test_an_unserved_call_is_answered_as_not_available(database):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        assert await harness.settle(limits(call_unserved=FAR, call_unstarted=PAST)) == []
        assert await harness.settle(limits(call_unstarted=PAST)) == []
        assert await harness.settle(NOBODY) == [("call_start", "applied")]
        assert await harness.call(CTX, "a") == ("running", None)
        assert await claim_of(harness) == ("keeper", 1, None)
        assert await harness.settle(NOBODY) == [("call_not_available", "applied")]
        assert await harness.call(CTX, "a") == ("failed", NOT_AVAILABLE)
        assert await harness.open_run(CTX) == 6
        assert await harness.texts(CTX) == ["calls a", f'"{NOT_AVAILABLE}"']
        assert await harness.settle(NOBODY) == []
        assert await claim_of(harness) == ("keeper", 1, "over")

    with_harness(database, test)


@pytest.mark.regression("fault 158", "fault 312")
@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
def test_a_claim_that_somebodys_transaction_locks_holds_up_no_other_rule(database, limit):
    on = limits(call_unserved=PAST, call_unstarted=PAST, run_silent=PAST)

    async def test(harness):
        await harness.say(CTX, calls("a"))
        await harness.lives("worker")
        await harness.claimed_call(CTX, "a", "worker")
        await harness.dies("worker")
        await harness.say("other", ask())
        await harness.execute(f"SET {limit} = '1s'")
        async with await psycopg.AsyncConnection.connect(database) as somebody:
            await somebody.execute("SELECT FROM claims FOR UPDATE")
            assert await harness.settle(on) == [("run_silent", "applied")]
        assert await harness.settle(on) == [("call_start", "applied")]

    with_harness(database, test)


@pytest.mark.parametrize("serving", [{"serves": ("a",)}, {"serves_all": True}])
def test_a_served_call_that_no_worker_starts_is_answered_as_not_started(database, serving):
    async def test(harness):
        await harness.lives("worker", **serving)
        await harness.say(CTX, calls("a"))
        assert await harness.settle(limits(call_unserved=PAST, call_unstarted=FAR)) == []
        assert await harness.settle(NOBODY) == [("call_start", "applied")]
        assert await harness.settle(NOBODY) == [("call_not_started", "applied")]
        status, told = await harness.call(CTX, "a")
        assert (status, "not started in time" in told) == ("failed", True)

    with_harness(database, test)


@pytest.mark.regression("worker 24")
def test_a_call_that_a_live_worker_released_and_does_not_serve_any_more_is_answered_as_not_available(
    database,
):
    async def test(harness):
        await harness.lives("worker", serves=("a",))
        await harness.say(CTX, calls("a"))
        await harness.claimed_call(CTX, "a", "worker")
        await harness.execute("UPDATE workers SET serves = ARRAY['another'] WHERE worker_id = 'worker'")
        assert await harness.settle(NOBODY) == []
        await harness.execute("UPDATE claims SET released_at = now()")
        assert await harness.settle(limits(call_unserved=MINUTE, call_unstarted=MINUTE)) == []
        assert await harness.settle(NOBODY) == [("call_start", "applied")]
        assert await harness.settle(NOBODY) == [("call_not_available", "applied")]

    with_harness(database, test)


def test_a_worker_of_a_function_serves_the_tool_that_cancels_it(database):
    async def test(harness):
        await harness.lives("worker", serves=("a",))
        await harness.say(CTX, ask(), start(run_id(CTX)))
        await harness.say(CTX, cancelling("cancel_a", builtin=True), cancelling("cancel_b", builtin=True))
        await harness.say(CTX, cancelling("cancel_a", builtin=False), end(run_id(CTX)))
        await harness.settle(NOBODY)
        assert sorted(await harness.settle(NOBODY)) == [
            *[("call_not_available", "applied")] * 2,
            ("call_not_started", "applied"),
        ]

    with_harness(database, test)


def test_a_worker_of_another_function_or_a_dead_one_or_one_of_models_does_not_serve_it(database):
    async def test(harness):
        await harness.lives("other", serves=("b",))
        await harness.lives("dead", serves=("a",))
        await harness.lives("model", kind="inference", serves=("a",), serves_all=True)
        await harness.dies("dead")
        await harness.say(CTX, calls("a"))
        await harness.settle(NOBODY)
        assert await harness.settle(NOBODY) == [("call_not_available", "applied")]

    with_harness(database, test)


def test_the_group_and_the_arguments_are_those_of_the_announcement(database):
    async def test(harness):
        await harness.say(CTX, calls("a", "b", group_id="both"))
        await harness.say(CTX, begin("b", attempt=1, group_id="both"))
        await harness.settle(NOBODY)
        assert await harness.settle(NOBODY) == [("call_not_available", "applied")]
        assert await harness.open_run(CTX) is None
        version = await harness.say(CTX, result("b", 1, attempt=1))
        assert await harness.open_run(CTX) == version

    with_harness(database, test)


def test_a_call_that_a_live_worker_has_is_left_to_it_and_one_of_a_worker_gone_for_long_is_taken(database):
    async def test(harness):
        on = limits(call_unserved=MINUTE / 2)
        await harness.lives("worker")
        await harness.say(CTX, calls("a"))
        await harness.claimed_call(CTX, "a", "worker", attempt=2)
        await harness.an_hour_passes(CTX)
        assert await harness.settle(on) == []
        await harness.dies("worker")
        assert await harness.settle(on, may_judge=False) == []
        assert await harness.settle(limits(call_unserved=2 * MINUTE)) == []
        assert await harness.settle(on) == [("call_start", "applied")]
        assert await claim_of(harness) == ("keeper", 3, None)
        assert await harness.value("SELECT attempt FROM tool_calls") == 3

    with_harness(database, test)


def test_a_call_that_is_started_in_the_meantime_is_its_workers(database):
    async def test(harness):
        await harness.lives("worker")
        await harness.say(CTX, calls("a"))
        found = await harness.sweep(NOBODY)
        # The worker was thought dead: its start comes first, and ours is ignored.
        await harness.say(CTX, begin("a", attempt=1, worker="worker", safe_to_retry=False))
        harness.publish(found)
        await harness.project()
        assert await harness.became(found[0]) == "call_started"

    with_harness(database, test)


@pytest.mark.parametrize(("safe", "ended"), [(True, "cancelled"), (False, "ambiguous")])
def test_a_call_that_a_worker_had_started_when_we_claimed_it_is_settled_as_by_a_takeover(
    database, safe, ended
):
    async def test(harness):
        await harness.lives("zombie")
        await harness.say(CTX, calls("a"))
        await harness.claimed_call(CTX, "a", "zombie")
        await harness.dies("zombie")
        found = await harness.sweep(NOBODY)
        await harness.say(CTX, begin("a", attempt=1, worker="zombie", safe_to_retry=safe))
        assert await claim_of(harness) == ("keeper", 2, None)
        # A call that is safe to retry goes on as our attempt. The model sees the same result.
        assert await harness.settle(NOBODY) == [("call_taken_over", "applied")]
        assert (await harness.call(CTX, "a"))[0] == ended
        harness.publish(found)
        await harness.project()
        assert await harness.became(found[0]) == "call_settled"
        assert await harness.open_run(CTX) is not None

    with_harness(database, test)


def test_a_call_that_is_interrupted_meanwhile_is_not_answered(database):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        found = await harness.sweep(NOBODY)
        await harness.say(CTX, interrupt())
        harness.publish(found)
        await harness.project()
        assert await harness.became(found[0]) == "call_forgotten"
        assert await harness.settle(NOBODY) == []
        assert await claim_of(harness) == ("keeper", 1, "over")

    with_harness(database, test)


def test_a_timekeeper_that_dies_after_claiming_or_starting_a_call_leaves_it_to_the_next_one(database):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        # It claims, and dies before it publishes.
        await harness.sweep(NOBODY, who="first")
        assert await harness.sweep(NOBODY, who="second") == []
        await harness.dies("first")
        # The second one publishes, and dies before it sees that the start was folded.
        assert await harness.settle(NOBODY, who="second") == [("call_start", "applied")]
        assert await harness.sweep(NOBODY, who="third") == []
        await harness.dies("second")
        # The third one publishes the result, dies, and comes again as the fourth, before the result is folded.
        found = await harness.sweep(NOBODY, who="third")
        assert [one.rule for one in found] == ["call_not_available"]
        await harness.dies("third")
        again = await harness.sweep(NOBODY, who="fourth")
        assert await claim_of(harness) == ("fourth", 4, None)
        harness.publish(found)
        harness.publish(again)
        await harness.project()
        assert [await harness.became(one) for one in (*found, *again)] == ["applied", "target_over"]
        assert await harness.texts(CTX) == ["calls a", f'"{NOT_AVAILABLE}"']
        assert await harness.settle(NOBODY, who="fourth") == []
        assert await claim_of(harness) == ("fourth", 4, "over")

    with_harness(database, test)


def test_the_same_sweep_again_publishes_the_same_frames(database):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        first, again = await harness.sweep(NOBODY), await harness.sweep(NOBODY)
        assert first == again
        harness.publish(first)
        harness.publish(again)
        await harness.project()
        first, again = await harness.sweep(NOBODY), await harness.sweep(NOBODY)
        assert first == again
        harness.publish(first)
        harness.publish(again)
        await harness.project()
        assert await harness.value("SELECT duplicate_count FROM contexts") == 2
        assert (await harness.call(CTX, "a"))[0] == "failed"

    with_harness(database, test)


def test_of_two_timekeepers_one_has_the_call(database):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        assert await harness.settle(NOBODY, who="first") == [("call_start", "applied")]
        assert await harness.settle(NOBODY, who="second") == []
        assert await harness.settle(NOBODY, who="first") == [("call_not_available", "applied")]

    with_harness(database, test)


def test_a_function_worker_that_takes_the_call_over_from_a_dead_timekeeper_answers_it_and_cannot_start_it(
    database,
):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        await harness.settle(NOBODY)
        late = await harness.sweep(NOBODY)
        await harness.lives("worker", serves=("a",))
        await harness.claimed_call(CTX, "a", "worker", attempt=2)
        started = await harness.say(CTX, begin("a", attempt=2, worker="worker", safe_to_retry=True))
        assert await harness.value("SELECT reason FROM frames WHERE version = %s", started) == "call_started"
        await harness.say(CTX, result("a", "not started", attempt=2, settled_as="failed"))
        # The timekeeper was not dead after all.
        harness.publish(late)
        await harness.project()
        assert await harness.became(late[0]) == "target_over"
        assert await harness.call(CTX, "a") == ("failed", "not started")

    with_harness(database, test)


def test_what_a_dead_timekeeper_had_started_is_cancelled_at_its_deadline_and_not_ambiguous(database):
    async def test(harness):
        await harness.say(CTX, calls("a"))
        await harness.settle(NOBODY)
        assert await harness.call(CTX, "a") == ("running", None)
        await harness.dies("keeper")
        overdue = await harness.settle(limits(call=PAST), who="second", may_judge=False)
        assert overdue == [("call_overdue", "applied")]
        assert (await harness.call(CTX, "a"))[0] == "cancelled"

    with_harness(database, test)


def test_recordings_and_contexts_that_ended_or_are_parked_are_left_alone(database):
    async def test(harness):
        await harness.say("recording", context("hi", react=False), calls("a", of="recording"))
        await harness.say("ended", calls("a", of="ended"), finish())
        await harness.say(CTX, calls("a"))
        await harness.execute(
            "UPDATE contexts SET parked_version = version + 1, parked_at = now(), parked_error = 'test'"
        )
        assert await harness.sweep(NOBODY) == []
        assert await harness.value("SELECT count(*) FROM claims") == 0
        await harness.say("open", calls("a", of="open"))
        assert len(await harness.sweep(NOBODY)) == 1

    with_harness(database, test)

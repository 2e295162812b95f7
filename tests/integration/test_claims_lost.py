"""Claims that a database lost with its latest commits, while the log has the frames published under them."""

import asyncio

import pytest
from tests.support.claim_workers import FUNCTIONS, run, workers

LEASE = 600.0
"""Seconds, more than a test takes and less than `a_lease_passes`."""

HIGHEST = 2**31 - 1
"""The highest attempt that a frame can name."""

pytestmark = pytest.mark.regression("fault 5")


async def lose(worker, *effects):
    """Let the database restart without the claims of these effects."""
    await worker.connection.execute(
        "DELETE FROM claims WHERE effect_id = ANY (%s)", ([effect.id for effect in effects],)
    )


async def a_lease_passes(worker):
    """Make everything a lease older; the workers stay alive."""
    await worker.connection.execute("UPDATE tool_calls SET started_at = started_at - interval '1 hour'")
    await worker.connection.execute(
        "UPDATE claims SET finished_at = finished_at - interval '1 hour', taken_at = taken_at - interval '1 hour'"
    )


def response(run_id, attempt, claim):
    return {"type": "LLMFullResponseStartFrame", "run_id": run_id, "attempt": attempt, "claim": claim}


def start_of(call, attempt, claim, *, safe=False):
    return {
        "type": "FunctionCallInProgressFrame",
        "function_name": call.function_name,
        "tool_call_id": call.tool_call_id,
        "arguments": {},
        "cancel_on_interruption": True,
        "call_attempt": attempt,
        "claim": claim,
        "safe_to_retry": safe,
    }


def test_a_claim_that_is_made_again_has_another_token(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}) as (one,):
            (first,) = (await one.claim_runs([effect])).claimed
            await lose(one, effect)
            assert (await one.heartbeat([effect.id])).lost == {effect.id}
            (again,) = (await one.claim_runs([effect])).claimed
            assert (first.attempt, again.attempt) == (1, 1)
            assert first.claim != again.claim
            assert len(again.claim) == 8
            one.tokens[effect.id] = first.claim
            assert (await one.heartbeat([effect.id])).lost == {effect.id}, "the claim is another one"
            await one.finish([effect.id])
            await one.release([effect.id])
            assert await one.next_attempt(effect.id, 1) is None
            one.tokens[effect.id] = again.claim
            assert (await one.heartbeat([effect.id])).lost == set()

    run(scenario())


def test_an_attempt_is_above_every_one_that_is_folded(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        (call,) = await scene.call("b", "f")
        await scene.fold(("a", response(effect.run_id, 2, "x")), ("b", start_of(call, 3, "x")))
        async with workers(scene.address, {}, FUNCTIONS | {"serves": ("f",)}) as (one, other):
            (run_claim,) = (await one.claim_runs([effect])).claimed
            assert run_claim.attempt == 3
            await a_lease_passes(one)
            (call_claim,) = (await other.claim_calls([call])).claimed
            assert (call_claim.call_attempt, call_claim.status) == (4, "running")
            await scene.fold(("a", response(effect.run_id, 7, "y")))
            assert await one.next_attempt(effect.id, 3) == 8
            await one.release([effect.id])
            await scene.fold(("a", response(effect.run_id, 9, "z")))
            (taken,) = await one.take_over_runs(5)
            assert taken.attempt == 10
            await other.release([call.id])
            (taken,) = await other.take_over_calls(5)
            assert taken.call_attempt == 5

    run(scenario())


@pytest.mark.regression("worker 54")
def test_the_highest_attempt_of_all_is_claimed_again_under_its_number_and_holds_up_no_other_work(scene):
    async def scenario():
        effect, beside = await scene.ask("a", "c")
        call, call_beside = await scene.call("b", "f", "f")
        await scene.fold(
            ("a", response(effect.run_id, HIGHEST, "x")), ("b", start_of(call, HIGHEST, "x", safe=True))
        )
        async with workers(scene.address, {}, FUNCTIONS | {"serves": ("f",)}) as (one, other):
            runs = (await one.claim_runs([effect, beside])).claimed
            assert [run.attempt for run in runs] == [HIGHEST, 1]
            await a_lease_passes(one)
            calls = (await other.claim_calls([call, call_beside])).claimed
            assert [call.call_attempt for call in calls] == [HIGHEST, 1]
            await one.release([effect.id])
            await other.release([call.id])
            assert [run.attempt for run in await one.take_over_runs(5)] == [HIGHEST]
            assert [call.call_attempt for call in await other.take_over_calls(5)] == [HIGHEST]

    run(scenario())


def test_a_worker_whose_attempt_another_started_releases_it_and_continues_with_the_next(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        (call,) = await scene.call("b", "f")
        async with workers(scene.address, {}, FUNCTIONS | {"serves": ("f",)}) as (one, other):
            await one.claim_runs([effect])
            await other.claim_calls([call])
            await scene.fold(
                ("a", response(effect.run_id, 1, "another")), ("b", start_of(call, 1, "another", safe=True))
            )
            assert (await one.heartbeat([effect.id])).lost == {effect.id}
            assert (await other.heartbeat([call.id])).lost == {call.id}
            await one.release([effect.id])
            await other.release([call.id])
            assert [taken.attempt for taken in await one.take_over_runs(5)] == [2]
            assert [taken.call_attempt for taken in await other.take_over_calls(5)] == [2]
            assert (await one.heartbeat([effect.id])).lost == set(), "the next attempt is above it"
            assert (await other.heartbeat([call.id])).lost == set()
            await scene.fold(("a", response(effect.run_id, 2, one.tokens[effect.id])))
            assert (await one.heartbeat([effect.id])).lost == set(), "it is its own start"

    run(scenario())


@pytest.mark.parametrize("ended", ["done", "over", "given_up"])
def test_what_was_finished_as_the_attempt_of_another_is_taken_again_a_lease_later(scene, ended):
    async def scenario():
        (effect,) = await scene.ask("a")
        (call,) = await scene.call("b", "f")
        async with workers(scene.address, {}, FUNCTIONS | {"serves": ("f",)}) as (one, other):
            await one.claim_runs([effect])
            await one.finish([effect.id], ended)
            await other.claim_calls([call])
            await other.finish([call.id], ended)
            await a_lease_passes(one)
            assert await one.unclaimed_runs(5) == [], "what was said under the claim is on its way"
            await scene.fold(("a", response(effect.run_id, 1, one.tokens[effect.id])))
            assert await one.unclaimed_runs(5) == []
            assert (await one.claim_runs([effect])).claimed == []
            await scene.fold(
                ("a", response(effect.run_id, 1, "another")), ("b", start_of(call, 1, "another"))
            )
            await a_lease_passes(one)
            await one.connection.execute("UPDATE runs SET opened_at = opened_at - interval '1 hour'")
            await one.connection.execute(
                "UPDATE tool_calls SET dispatched_at = dispatched_at - interval '1 hour'"
            )
            assert await one.unclaimed_runs(5) == [effect]
            assert [one.id for one in await other.unclaimed_calls(5)] == [call.id]
            (taken_run,) = (await one.claim_runs([effect])).claimed
            (taken_call,) = (await other.claim_calls([call])).claimed
            assert (taken_run.attempt, taken_call.call_attempt) == (2, 2)
            assert (await one.claim_runs([effect])).claimed == []
            assert await other.unclaimed_calls(5) == []

    run(scenario())


@pytest.mark.regression("trial C5")
def test_a_call_that_runs_without_a_claim_is_taken_a_lease_later(scene):
    async def scenario():
        started, its_own = await scene.call("a", "f", "f")
        await scene.fold(("a", start_of(started, 1, "lost")), ("a", start_of(its_own, None, None)))
        async with workers(scene.address, FUNCTIONS | {"serves": ("f",)}) as (one,):
            await one.connection.execute(
                "UPDATE tool_calls SET dispatched_at = dispatched_at - interval '1 hour', started_at = now()"
            )
            assert await one.unclaimed_calls(5) == [], "its worker may still end it"
            assert (await one.claim_calls([started])).claimed == []
            await a_lease_passes(one)
            assert [effect.id for effect in await one.unclaimed_calls(5)] == [started.id]
            (taken,) = (await one.claim_calls([started, its_own])).claimed
            assert (taken.effect_id, taken.call_attempt, taken.status) == (started.id, 2, "running")

    run(scenario())


def test_of_two_workers_that_claim_work_whose_claim_had_no_effect_one_gets_it(scene):
    async def scenario():
        asked = await scene.ask(*(f"c{number}" for number in range(50)))
        async with workers(scene.address, *[{}] * 4) as four:
            await four[0].claim_runs(asked)
            await four[0].finish([effect.id for effect in asked])
            await scene.fold(
                *((effect.context_id, response(effect.run_id, 1, "another")) for effect in asked)
            )
            await a_lease_passes(four[0])
            found = await asyncio.gather(*(one.claim_runs(asked) for one in four))
            taken = [claimed for claiming in found for claimed in claiming.claimed]
            assert sorted(one.effect_id for one in taken) == sorted(effect.id for effect in asked)
            assert {one.attempt for one in taken} == {2}

    run(scenario())


@pytest.mark.regression("fault 17j")
def test_claims_that_a_worker_does_not_know_are_released_once_they_are_a_lease_old(scene):
    async def scenario():
        known, unknown = await scene.ask("a", "b")
        async with workers(scene.address, {}) as (one,):
            await one.claim_runs([known, unknown])
            assert await one.release_all_but([known.id], older_than_secs=LEASE) == 0
            await a_lease_passes(one)
            assert await one.release_all_but([known.id], older_than_secs=LEASE) == 1
            assert [taken.context_id for taken in await one.take_over_runs(5)] == ["b"]

    run(scenario())

"""What workers do with their claims, on a real database: heartbeats, the next attempt, release, finish."""

import pytest
from tests.support.claim_workers import FUNCTIONS, die, finishes, run, workers
from tests.support.scene import INTERRUPTION

from frameledger_services import claims


def test_a_heartbeat_names_work_that_is_obsolete_and_work_that_was_lost(scene):
    async def scenario():
        over, taken, mine, finished = await scene.ask("over", "taken", "mine", "finished")
        async with workers(scene.address, {}, {}) as (one, other):
            await one.claim_runs([over, taken, mine, finished])
            held = [over.id, taken.id, mine.id, finished.id, "of nobody"]
            await one.release([taken.id])
            await other.take_over_runs(1)
            await one.finish([finished.id])
            await scene.fold(("over", INTERRUPTION))
            answer = await one.heartbeat(held)
            assert answer == claims.Heartbeat(
                True, frozenset([over.id]), frozenset([taken.id, finished.id, "of nobody"])
            )
            assert await one.heartbeat([]) == claims.Heartbeat(True)

    run(scenario())


def test_a_heartbeat_names_calls_that_are_settled_or_must_be_cancelled(scene):
    async def scenario():
        dispatched, running, interrupted, settled = await scene.call("a", "f", "g", "h", "i")
        async with workers(scene.address, FUNCTIONS | {"serves_all": True}) as (one,):
            await one.claim_calls([dispatched, running, interrupted, settled])
            for call in (running, interrupted, settled):
                await scene.start_call(call, attempt=1, safe=False)
            held = [dispatched.id, running.id, interrupted.id, settled.id]
            assert (await one.heartbeat(held)) == claims.Heartbeat(True)
            result = {
                "type": "FunctionCallResultFrame",
                "function_name": "i",
                "tool_call_id": settled.tool_call_id,
                "arguments": {},
                "result": 1,
            }
            await scene.fold(("a", result))
            assert (await one.heartbeat(held)).obsolete == {settled.id}
            await scene.fold(("a", INTERRUPTION))
            # The dispatched call is forgotten, and the started ones have to be cancelled.
            assert (await one.heartbeat(held)).obsolete == set(held)

    run(scenario())


def test_a_dead_worker_stays_dead(scene):
    async def scenario():
        async with workers(scene.address, {}, {}, {}) as (silent, left, gone):
            await die(silent)
            await claims.leave(left.connection, left.id)
            await gone.connection.execute("DELETE FROM workers WHERE worker_id = %s", (gone.id,))
            for one in (silent, left, gone):
                assert not (await one.heartbeat([])).alive
                assert not (await one.heartbeat([])).alive

    run(scenario())


def test_released_work_may_be_taken_at_once(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (one, other):
            await one.claim_runs([effect])
            await one.release([effect.id])
            assert [run.attempt for run in await other.take_over_runs(10)] == [2]
            await one.release([effect.id])
            assert await one.take_over_runs(10) == [], "it was not its own any more"

    run(scenario())


@pytest.mark.regression("fault 10")
def test_an_attempt_that_published_nothing_is_released_with_its_number(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (one, other):
            (first,) = (await one.claim_runs([effect])).claimed
            await one.release([effect.id], untried=True)
            (second,) = await other.take_over_runs(10)
            assert (second.attempt, second.claim == first.claim) == (1, False)
            # Released again by a worker that does not have it any more: that does not lower the attempt.
            await one.release([effect.id], untried=True)
            await other.release([effect.id])
            assert [run.attempt for run in await one.take_over_runs(10)] == [2]

    run(scenario())


def test_a_worker_keeps_its_own_work_with_the_next_attempt_and_no_others(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (one, other):
            await one.claim_runs([effect])
            assert await one.next_attempt(effect.id, 1) == 2
            assert await one.next_attempt(effect.id, 1) is None
            assert await other.next_attempt(effect.id, 2) is None
            await one.release([effect.id])
            assert await one.next_attempt(effect.id, 2) is None
            assert [run.attempt for run in await other.take_over_runs(1)] == [3]
            await other.finish([effect.id])
            assert await other.next_attempt(effect.id, 3) is None

    run(scenario())


def test_finished_work_stays_finished_as_it_was(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (one, other):
            await one.claim_runs([effect])
            await other.finish([effect.id], "over")
            assert await finishes(one) == {"a": None}
            await one.finish([effect.id], "given_up")
            await one.finish([effect.id], "done")
            await one.release([effect.id])
            assert await finishes(one) == {"a": "given_up"}
            assert await other.take_over_runs(1) == []
            assert (await other.claim_runs([effect])).claimed == []

    run(scenario())


def test_claims_whose_answer_was_lost_are_released(scene):
    async def scenario():
        known, unknown = await scene.ask("a", "b")
        async with workers(scene.address, {}) as (one,):
            await one.claim_runs([known, unknown])
            assert await one.release_all_but([known.id]) == 1
            assert await one.release_all_but([known.id]) == 0
            assert [run.context_id for run in await one.take_over_runs(5)] == ["b"]

    run(scenario())


def test_old_claims_and_workers_are_deleted_and_unfinished_ones_are_not(scene):
    async def scenario():
        effects = await scene.ask("old", "unfinished", "new")
        async with workers(scene.address, {}, {}, {}) as (one, _idle, living):
            await one.claim_runs(effects)
            await one.finish([effects[0].id, effects[2].id])
            await one.connection.execute(
                "UPDATE claims SET claimed_at = claimed_at - interval '31 days' WHERE context_id <> 'new'"
            )
            await one.connection.execute(
                "UPDATE workers SET heartbeat_at = heartbeat_at - interval '31 days' WHERE worker_id <> %s",
                (living.id,),
            )
            assert await claims.purge(one.connection, claims_days=30, workers_days=30) == 1
            assert set(await finishes(one)) == {"unfinished", "new"}
            cursor = await one.connection.execute("SELECT worker_id FROM workers")
            assert {row[0] for row in await cursor.fetchall()} == {one.id, living.id}

    run(scenario())


def test_workers_that_died_long_ago_are_marked_as_stopped(scene):
    async def scenario():
        async with workers(scene.address, {}, {}, {}) as (one, living, just_dead):
            await die(one)
            await just_dead.connection.execute(
                "UPDATE workers SET heartbeat_at = heartbeat_at - interval '2 minutes' WHERE worker_id = %s",
                (just_dead.id,),
            )
            await claims.reap_workers(living.connection)
            await claims.reap_workers(living.connection)
            cursor = await living.connection.execute(
                "SELECT worker_id FROM workers WHERE stopped_at = heartbeat_at"
            )
            assert await cursor.fetchall() == [(one.id,)]
            assert (await living.heartbeat([])).alive
            assert not (await one.heartbeat([])).alive

    run(scenario())

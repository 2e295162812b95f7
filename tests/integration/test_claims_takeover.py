"""Taking over from dead workers, on a real database, with the next attempt."""

import asyncio

import pytest
from tests.bounds import ON_SERVERS
from tests.support.claim_workers import FUNCTIONS, connected_for_long, die, finishes, run, workers
from tests.support.scene import INTERRUPTION

from frameledger_services import claims
from frameledger_services.claims import ClaimedRun


def test_the_work_of_a_dead_worker_is_taken_over_with_the_next_attempt(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}, {}) as (dead, one, another):
            await dead.claim_runs([effect])
            await connected_for_long(one)
            assert await one.take_over_runs(10) == []
            await die(dead)
            assert await another.take_over_runs(10) == [], "it has not been connected for a lease itself"
            (taken,) = await one.take_over_runs(10)
            assert taken.claim != dead.tokens[effect.id]
            assert taken == ClaimedRun(
                *(effect.id, "a", effect.version, effect.run_id),
                attempt=2,
                claim=taken.claim,
                causation_id=effect.causation_id,
                trigger="LLMMessagesAppendFrame",
                taken_over=True,
                deaths=1,
            )
            await connected_for_long(another)
            assert await another.take_over_runs(10) == []
            await claims.reconnected(another.connection, another.id)
            await die(one)
            assert await another.take_over_runs(10) == []
            await connected_for_long(another)
            assert [(run.attempt, run.deaths) for run in await another.take_over_runs(10)] == [(3, 2)]

    run(scenario())


def test_a_dead_workers_own_lease_counts_too(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {"lease_secs": 3_600.0}, {"lease_secs": 1.0}) as (dead, one):
            await dead.claim_runs([effect])
            await die(dead)
            await one.connection.execute(
                "UPDATE workers SET connected_at = connected_at - interval '10 s' WHERE worker_id = %s",
                (one.id,),
            )
            assert await one.take_over_runs(10) == []
            await connected_for_long(one)
            assert len(await one.take_over_runs(10)) == 1

    run(scenario())


@pytest.mark.regression("worker 175")
def test_after_the_databases_clock_was_set_back_a_dead_worker_is_noticed_a_lease_later(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (dead, one):
            await dead.claim_runs([effect])
            await one.connection.execute(
                "UPDATE workers SET heartbeat_at = heartbeat_at + interval '1 hour', "
                "connected_at = connected_at + interval '1 hour'"
            )
            assert (await one.heartbeat([])).alive
            await claims.reap_workers(one.connection)
            # Their lease is a minute.
            later = "UPDATE workers SET {0} = {0} - interval '61 s' WHERE worker_id = %s"
            await one.connection.execute(later.format("heartbeat_at"), (dead.id,))
            assert await one.take_over_runs(10) == []
            await one.connection.execute(later.format("connected_at"), (one.id,))
            assert len(await one.take_over_runs(10)) == 1

    run(scenario())


def test_two_takeovers_at_once_never_wait_and_never_take_the_same(scene):
    async def scenario():
        effects = await scene.ask(*(f"c{number}" for number in range(200)))
        async with workers(scene.address, {}, {}, {}) as (dead, one, other):
            await dead.claim_runs(effects)
            await die(dead)
            for taker in (one, other):
                await connected_for_long(taker)
            # One worker takes some over and freezes before its commit; the other does not wait for it.
            async with one.connection.transaction():
                first = await one.take_over_runs(50)
                async with asyncio.timeout(ON_SERVERS):
                    second = await other.take_over_runs(1_000)
            taken = [run.effect_id for run in [*first, *second]]
            assert len(first) == 50
            assert sorted(taken) == sorted(effect.id for effect in effects)

    run(scenario())


def test_calls_are_taken_over_with_their_columns(scene):
    async def scenario():
        dispatched, safe, interrupted, waiting = await scene.call("a", "f", "g", "h", "w")
        async with workers(
            scene.address, FUNCTIONS | {"serves_all": True}, FUNCTIONS | {"serves_all": True}
        ) as (dead, one):
            await dead.claim_calls([dispatched, safe, interrupted, waiting])
            await scene.start_call(safe, attempt=1, safe=True)
            await dead.connection.execute(
                "UPDATE tool_calls SET status = 'waiting' WHERE tool_call_id = %s", (waiting.tool_call_id,)
            )
            await die(dead)
            await connected_for_long(one)
            taken = await one.take_over_calls(10)
            assert [
                (call.function_name, call.status, call.safe_to_retry, call.interrupted, call.call_attempt)
                for call in taken
            ] == [
                ("f", "dispatched", None, False, 2),
                ("g", "running", True, False, 2),
                ("h", "dispatched", None, False, 2),
            ]
            assert {call.causation_id for call in taken} == {dispatched.causation_id}
            cursor = await one.connection.execute(
                "SELECT frame_id FROM frames WHERE type LIKE '%InProgress%'"
            )
            [(start,)] = await cursor.fetchall()
            assert [call.started_by for call in taken] == [None, start, None]
            await scene.start_call(interrupted, attempt=2, safe=False)
            await scene.fold(("a", INTERRUPTION))
            await one.release([dispatched.id, safe.id, interrupted.id])
            assert [(call.function_name, call.interrupted) for call in await one.take_over_calls(10)] == [
                ("g", True),
                ("h", True),
            ]
            assert await one.finish_over() == 2, "the forgotten call, and the one that waits for a person"

    run(scenario())


@pytest.mark.regression("worker 73")
def test_only_attempts_whose_worker_died_are_counted_as_deaths(scene):
    async def scenario():
        (call,) = await scene.call("b", "f")
        offer = FUNCTIONS | {"serves": ("f",)}
        async with workers(scene.address, offer, offer, offer) as (one, dead, other):
            [claimed] = (await one.claim_calls([call])).claimed
            await one.release([call.id])
            [released] = await dead.take_over_calls(10)
            await connected_for_long(other)
            await die(dead)
            [orphaned] = await other.take_over_calls(10)
            await other.release([call.id], untried=True)
            [untried] = await one.take_over_calls(10)
            await claims.release_all_but(one.connection, one.id, {})
            [unknown] = await other.take_over_calls(10)
        taken = (claimed, released, orphaned, untried, unknown)
        assert [(one.call_attempt, one.deaths) for one in taken] == [(1, 0), (2, 0), (3, 1), (3, 1), (4, 1)]

    run(scenario())


@pytest.mark.regression("worker 85")
def test_a_run_that_a_worker_released_counts_no_death(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}, {}) as (one, dead, other):
            [claimed] = (await one.claim_runs([effect])).claimed
            await one.release([effect.id])
            [released] = await dead.take_over_runs(10)
            await connected_for_long(other)
            await die(dead)
            [orphaned] = await other.take_over_runs(10)
        taken = (claimed, released, orphaned)
        assert [(one.attempt, one.deaths) for one in taken] == [(1, 0), (2, 0), (3, 1)]

    run(scenario())


def test_no_worker_takes_over_what_it_does_not_serve_or_what_is_parked(scene):
    async def scenario():
        (named,) = await scene.ask("named", settings={"model": "m1"})
        (parked,) = await scene.ask("parked")
        async with workers(scene.address, {"serves": ("m1",)}, {"serves": ("m2",)}) as (one, other):
            await one.claim_runs([named, parked])
            await one.release([named.id, parked.id])
            await one.connection.execute(
                "UPDATE contexts SET parked_version = 9, parked_at = now(), parked_error = 'x' "
                "WHERE context_id = 'parked'"
            )
            assert await other.take_over_runs(10) == []
            assert [run.context_id for run in await one.take_over_runs(10)] == ["named"]

    run(scenario())


def test_claims_of_work_that_has_ended_are_finished_as_over(scene):
    async def scenario():
        effects = await scene.ask("over", "open", "of the living")
        async with workers(scene.address, {}, {}, {}) as (dead, one, living):
            await dead.claim_runs(effects[:2])
            await living.claim_runs(effects[2:])
            await die(dead)
            await connected_for_long(one)
            await scene.fold(("over", INTERRUPTION), ("of the living", INTERRUPTION))
            assert await one.finish_over() == 1
            assert await finishes(one) == {"over": "over", "open": None, "of the living": None}
            assert [run.context_id for run in await one.take_over_runs(10)] == ["open"]

    run(scenario())

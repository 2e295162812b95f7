"""Claiming on a real database: each effect has one owner, which serves it."""

import asyncio

import pytest
from tests.bounds import ON_SERVERS
from tests.support.claim_workers import FUNCTIONS, die, run, workers
from tests.support.scene import INTERRUPTION, made_up_run

from frameledger_services import claims
from frameledger_services.claims import ClaimedRun, Registration, WorkerDeadError
from frameledger_services.claims import unclaimed as unclaimed_work


def test_the_first_worker_gets_a_claim_and_the_second_finds_it_claimed(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (one, other):
            assert await one.claim_runs([effect]) == claims.ClaimResult(
                [
                    ClaimedRun(
                        *(effect.id, "a", effect.version, effect.run_id),
                        attempt=1,
                        claim=one.tokens[effect.id],
                        causation_id=effect.causation_id,
                        trigger="LLMMessagesAppendFrame",
                    )
                ]
            )
            assert (await other.claim_runs([effect])).claimed == []
            assert (await one.claim_runs([effect])).claimed == []

    run(scenario())


def test_of_workers_that_request_the_same_thousand_at_once_each_claim_has_one_owner(scene):
    async def scenario():
        effects = await scene.ask(*(f"c{number}" for number in range(1_000)))
        async with workers(scene.address, *[{}] * 4) as four:
            async with asyncio.timeout(ON_SERVERS):
                found = await asyncio.gather(
                    *(
                        one.claim_runs(effects if number % 2 else effects[::-1])
                        for number, one in enumerate(four)
                    )
                )
                answer = await four[0].heartbeat([effect.id for effect in effects])
        taken = [one.effect_id for claiming in found for one in claiming.claimed]
        assert len(answer.lost) == 1_000 - len(found[0].claimed)
        assert sorted(taken) == sorted(effect.id for effect in effects)

    run(scenario())


def test_claims_come_in_the_order_asked_and_no_more_than_the_limit(scene):
    async def scenario():
        effects = await scene.ask(*"abcdef")
        await scene.fold((effects[0].context_id, INTERRUPTION))
        async with workers(scene.address, {}, {}) as (one, other):
            assert [run.context_id for run in (await other.claim_runs([effects[2]])).claimed] == ["c"]
            asked = [made_up_run(1), *effects, made_up_run(2)]
            first = await one.claim_runs(asked, 2)
            assert [run.context_id for run in first.claimed] == ["b", "d"]
            # e, f and the one that is over: they have to be requested again.
            assert first.unexamined == 3
            second = await one.claim_runs(asked[-first.unexamined :], 10)
            assert [run.context_id for run in second.claimed] == ["e", "f"]
            assert second.unexamined == 0

    run(scenario())


def test_an_effect_that_the_topic_holds_twice_is_claimed_once(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}) as (one,):
            assert len((await one.claim_runs([effect, effect])).claimed) == 1

    run(scenario())


def test_what_is_over_is_not_claimed_nor_what_is_parked(scene):
    async def scenario():
        over, parked, fine = await scene.ask("over", "parked", "fine")
        await scene.fold(("over", INTERRUPTION))
        async with workers(scene.address, {}) as (one,):
            await one.connection.execute(
                "UPDATE contexts SET parked_version = 9, parked_at = now(), parked_error = 'x' "
                "WHERE context_id = 'parked'"
            )
            found = await one.claim_runs([over, parked, fine])
            assert [run.context_id for run in found.claimed] == ["fine"]

    run(scenario())


def test_a_dead_worker_claims_nothing_and_gets_an_error(scene):
    async def scenario():
        effects = await scene.ask("a")
        calls = await scene.call("b", "f")
        async with workers(scene.address, {}, {}, FUNCTIONS) as (dead, left, of_calls):
            await die(dead)
            await claims.leave(left.connection, left.id)
            for one in (dead, left):
                with pytest.raises(WorkerDeadError, match=one.id):
                    await one.claim_runs(effects)
                with pytest.raises(WorkerDeadError, match=one.id):
                    await one.take_over_runs(1)
            await die(of_calls)
            with pytest.raises(WorkerDeadError):
                await of_calls.claim_calls(calls)
            with pytest.raises(WorkerDeadError):
                await of_calls.take_over_calls(1)
            assert (await one.connection.execute("SELECT FROM claims")).rowcount == 0

    run(scenario())


def test_a_run_that_names_a_model_goes_to_a_worker_that_lists_it_else_to_a_catch_all(scene):
    async def scenario():
        (named,) = await scene.ask("named", settings={"model": "m1"})
        (unnamed,) = await scene.ask("unnamed")
        async with workers(
            scene.address,
            {"serves": ("m1",)},
            {"serves": ("m2",)},
            {"serves_all": True},
            # A worker of another kind does not count as listing the name.
            FUNCTIONS | {"serves": ("m1",)},
        ) as (lister, other, catch_all, _):
            assert (await other.claim_runs([named])).claimed == []
            assert (await catch_all.claim_runs([named])).claimed == []
            await claims.leave(lister.connection, lister.id)
            assert [run.run_id for run in (await catch_all.claim_runs([named])).claimed] == [named.run_id]
            assert [run.run_id for run in (await other.claim_runs([unnamed])).claimed] == [unnamed.run_id]

    run(scenario())


def test_a_worker_that_lists_the_model_claims_the_run(scene):
    async def scenario():
        (named,) = await scene.ask("named", settings={"model": "m1", "extra": {"odd": "\ud800 \x00"}})
        async with workers(scene.address, {"serves": ("m1",)}) as (lister,):
            assert len((await lister.claim_runs([named])).claimed) == 1

    run(scenario())


def test_a_call_goes_to_a_worker_that_lists_its_function_else_to_a_catch_all(scene):
    async def scenario():
        listed, unlisted = await scene.call("a", "f", "g")
        async with workers(
            scene.address,
            FUNCTIONS | {"serves": ("f",)},
            FUNCTIONS | {"serves_all": True},
            # A worker of another kind does not count as listing the name.
            {"serves": ("g",)},
        ) as (lister, catch_all, _):
            assert [
                one.function_name for one in (await catch_all.claim_calls([listed, unlisted])).claimed
            ] == ["g"]
            (call,) = (await lister.claim_calls([listed, unlisted])).claimed
            assert call.age_secs >= 0
            assert call == claims.ClaimedCall(
                effect_id=listed.id,
                context_id="a",
                version=listed.version,
                requested_version=listed.requested_version,
                ordinal=0,
                tool_call_id="a-0",
                function_name="f",
                arguments={"n": 0},
                group_id=call.group_id,
                run_id=scene.runs[0].run_id,
                call_attempt=1,
                age_secs=call.age_secs,
                status="dispatched",
                safe_to_retry=None,
                interrupted=False,
                builtin=False,
                started_by=None,
                claim=call.claim,
                causation_id=listed.causation_id,
            )

    run(scenario())


def test_a_worker_of_a_function_serves_the_built_in_one_that_cancels_it(scene):
    async def scenario():
        (builtin,) = await scene.call("a", "cancel_f", builtin=True)
        (own,) = await scene.call("b", "cancel_f", tools=("cancel_f",))
        async with workers(scene.address, FUNCTIONS | {"serves": ("f",)}) as (one,):
            assert [call.builtin for call in (await one.claim_calls([builtin, own])).claimed] == [True]


@pytest.mark.regression("call b")
def test_a_worker_of_a_function_of_that_name_serves_it_instead_of_the_built_in_one(scene):
    async def scenario():
        (builtin,) = await scene.call("a", "cancel_f", builtin=True)
        async with workers(
            scene.address, FUNCTIONS | {"serves": ("f",)}, FUNCTIONS | {"serves": ("cancel_f",)}
        ) as (of_f, own):
            assert (await of_f.claim_calls([builtin])).claimed == []
            assert len((await own.claim_calls([builtin])).claimed) == 1

    run(scenario())


@pytest.mark.regression("call f")
def test_a_call_whose_worker_died_a_moment_ago_waits_for_the_next_one_of_its_service(scene):
    async def scenario():
        (call,) = await scene.call("a", "f")
        async with workers(scene.address, FUNCTIONS | {"serves": ("e",)}, FUNCTIONS | {"serves": ("f",)}) as (
            other,
            dead,
        ):
            lately = (
                "UPDATE workers SET heartbeat_at = clock_timestamp() - interval '2 min' WHERE worker_id = %s"
            )
            await dead.connection.execute(lately, (dead.id,))
            assert (await other.claim_calls([call])).claimed == []
            # It died so long ago that its restart is not expected any more.
            await die(dead)
            assert len((await other.claim_calls([call])).claimed) == 1

    run(scenario())


@pytest.mark.regression("call f")
def test_an_unserved_call_goes_to_any_worker_unless_the_tools_of_its_context_have_the_function(scene):
    async def scenario():
        (made_up,) = await scene.call("a", "f")
        (advertised,) = await scene.call("b", "f", tools=("e", "f"))
        (listed,) = await scene.call("c", "g")
        async with workers(scene.address, FUNCTIONS | {"serves": ("e",)}, FUNCTIONS | {"serves": ("g",)}) as (
            one,
            _,
        ):
            claimed = (await one.claim_calls([listed, advertised, made_up])).claimed
            assert [call.context_id for call in claimed] == ["a"]
        async with workers(scene.address, FUNCTIONS | {"serves": ("f",)}) as (late,):
            assert len((await late.claim_calls([advertised])).claimed) == 1

    run(scenario())


def test_what_a_worker_serves_may_change(scene):
    async def scenario():
        (call,) = await scene.call("a", "f", tools=("f",))
        async with workers(scene.address, FUNCTIONS) as (one,):
            assert (await one.claim_calls([call])).claimed == []
            await claims.update_registration(
                one.connection, Registration(one.id, "test", "functions", "here", 1, 60, 10, serves=("f",))
            )
            assert len((await one.claim_calls([call])).claimed) == 1

    run(scenario())


def test_unclaimed_work_is_found_under_the_ids_of_its_effects(scene, monkeypatch):
    async def scenario():
        (claimed,) = await scene.ask("claimed")
        (named,) = await scene.ask("named", settings={"model": "m1"})
        (unclaimed,) = await scene.ask("unclaimed")
        await scene.ask("over")
        await scene.fold(("over", INTERRUPTION))
        calls = await scene.call("calls", "f", "g", "h", tools=("h",))
        async with workers(scene.address, {}, {"serves": ("m1",)}, FUNCTIONS | {"serves": ("f", "g")}) as (
            one,
            lister,
            of_calls,
        ):
            await one.claim_runs([claimed])
            assert await one.unclaimed_runs(10) == [unclaimed]
            assert await lister.unclaimed_runs(10) == [named, unclaimed]
            assert await lister.unclaimed_runs(1) == [named]
            await of_calls.claim_calls(calls[:1])
            assert await of_calls.unclaimed_calls(10) == [calls[1]]
            monkeypatch.setattr(unclaimed_work, "AFTER_SECONDS", ON_SERVERS)
            await one.connection.execute("UPDATE runs SET opened_at = clock_timestamp()")
            assert await one.unclaimed_runs(10) == [], "they may be on their way"

    run(scenario())


def test_no_worker_claims_work_of_a_recording(scene):
    """Work that was open when the context became a recording is not claimed by any statement."""

    async def scenario():
        (asked, released) = await scene.ask("a", "b")
        (call,) = await scene.call("c", "f")
        async with workers(scene.address, {}, FUNCTIONS | {"serves_all": True}) as (one, of_calls):
            await one.claim_runs([released])
            await one.release([released.id])
            recording = {"type": "LLMContextFrame", "context": {"messages": []}, "react": False}
            await scene.fold(*((name, recording) for name in "abc"))
            assert (await one.claim_runs([asked])).claimed == []
            assert (await of_calls.claim_calls([call])).claimed == []
            assert await one.unclaimed_runs(10) == []
            assert await of_calls.unclaimed_calls(10) == []
            assert await one.take_over_runs(10) == []
            await scene.fold(("a", recording | {"react": True}))
            assert len((await one.claim_runs([asked])).claimed) == 1

    run(scenario())

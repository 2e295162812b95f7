"""Who runs what, on a real database: claims, heartbeats, and taking over from the dead."""

import asyncio
import itertools
import time
from contextlib import AsyncExitStack, asynccontextmanager

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.scene import INTERRUPTION, Scene, made_up_run

from frameledger_services import claims
from frameledger_services.claims import ClaimedRun, Registration, WorkerDeadError

_numbers = itertools.count(1)


@pytest.fixture
def scene(database):
    return Scene(database)


class Worker:
    """A worker's row, and the statements on a connection of its own. It remembers the tokens of what it claimed, and
    names work by effects alone."""

    def __init__(self, connection, offer):
        self.connection = connection
        self.id = offer.worker_id
        self.offer = offer
        self.tokens = {}

    def __getattr__(self, name):
        statement = getattr(claims, name)

        async def ask(*args, **options):
            if name in ("finish", "release", "release_all_but", "heartbeat"):
                args = (self.held(args[0]), *args[1:])
            if name == "next_attempt":
                args = (args[0], self.tokens.get(args[0], ""), *args[1:])
            answer = await statement(self.connection, self.id, *args, **options)
            if name.startswith(("claim_", "take_over_")):
                claimed = getattr(answer, "claimed", answer)
                self.tokens |= {one.effect_id: one.claim for one in claimed}
            return answer

        return ask

    def held(self, effect_ids):
        return {one: self.tokens.get(one, "") for one in effect_ids}


@asynccontextmanager
async def workers(address, *offered):
    """Workers that have registered, each offer given by what is not usual of it."""
    async with AsyncExitStack() as stack:
        made = []
        for options in offered:
            connection = await stack.enter_async_context(
                await psycopg.AsyncConnection.connect(address, autocommit=True)
            )
            usual = {
                "worker_id": f"worker-{next(_numbers)}",
                "service": "test",
                "kind": "inference",
                "host": "here",
                "pid": 1,
                "lease_secs": 60.0,
                "slots": 10,
            }
            offer = Registration(**usual | options)
            await claims.register(connection, offer)
            made.append(Worker(connection, offer))
        yield made


def run(scenario):
    asyncio.run(scenario)


async def die(worker):
    """Make a worker's last heartbeat older than its lease."""
    await worker.connection.execute(
        "UPDATE workers SET heartbeat_at = heartbeat_at - interval '1 day' WHERE worker_id = %s", (worker.id,)
    )


async def connected_for_long(worker):
    await worker.connection.execute(
        "UPDATE workers SET connected_at = connected_at - interval '1 day' WHERE worker_id = %s", (worker.id,)
    )


FUNCTIONS = {"kind": "functions"}


def test_who_claims_first_has_it_and_the_second_finds_it_taken(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (one, other):
            assert await one.claim_runs([effect]) == claims.ClaimResult(
                [
                    ClaimedRun(
                        effect.id, "a", effect.version, effect.run_id, attempt=1, claim=one.tokens[effect.id]
                    )
                ]
            )
            assert (await other.claim_runs([effect])).claimed == []
            assert (await one.claim_runs([effect])).claimed == []

    run(scenario())


def test_of_two_who_ask_for_the_same_thousand_at_once_each_claim_has_one_owner(scene):
    async def scenario():
        effects = await scene.ask(*(f"c{number}" for number in range(1_000)))
        async with workers(scene.address, *[{}] * 4) as four:
            began = time.monotonic()
            found = await asyncio.gather(
                *(one.claim_runs(effects if number % 2 else effects[::-1]) for number, one in enumerate(four))
            )
            claimed_in = time.monotonic() - began
            began = time.monotonic()
            answer = await four[0].heartbeat([effect.id for effect in effects])
            asked_in = time.monotonic() - began
            print(
                f"\n1,000 claimed by four at once: {claimed_in:.3f} s; heartbeat of 1,000: {asked_in:.3f} s"
            )
            assert claimed_in < 10
            assert asked_in < 2
        taken = [one.effect_id for claiming in found for one in claiming.claimed]
        assert len(answer.lost) == 1_000 - len(found[0].claimed)
        assert sorted(taken) == sorted(effect.id for effect in effects)

    run(scenario())


def test_claims_come_in_the_order_asked_and_no_more_than_the_limit(scene):
    async def scenario():
        effects = await scene.ask(*"abcdef")
        await scene.tell((effects[0].context_id, INTERRUPTION))
        async with workers(scene.address, {}, {}) as (one, other):
            assert [run.context_id for run in (await other.claim_runs([effects[2]])).claimed] == ["c"]
            asked = [made_up_run(1), *effects, made_up_run(2)]
            first = await one.claim_runs(asked, 2)
            assert [run.context_id for run in first.claimed] == ["b", "d"]
            # e, f and the one that is over: they have to be asked for again.
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
        await scene.tell(("over", INTERRUPTION))
        async with workers(scene.address, {}) as (one,):
            await one.connection.execute(
                "UPDATE contexts SET parked_version = 9, parked_at = now(), parked_error = 'x' "
                "WHERE context_id = 'parked'"
            )
            found = await one.claim_runs([over, parked, fine])
            assert [run.context_id for run in found.claimed] == ["fine"]

    run(scenario())


def test_a_dead_worker_claims_nothing_and_is_told(scene):
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


def test_a_run_that_names_a_model_goes_to_who_lists_it_else_to_who_takes_any(scene):
    async def scenario():
        (named,) = await scene.ask("named", settings={"model": "m1"})
        (unnamed,) = await scene.ask("unnamed")
        async with workers(scene.address, {"serves": ("m1",)}, {"serves": ("m2",)}, {"serves_all": True}) as (
            lister,
            other,
            catch_all,
        ):
            assert (await other.claim_runs([named])).claimed == []
            assert (await catch_all.claim_runs([named])).claimed == []
            await claims.leave(lister.connection, lister.id)
            assert [run.run_id for run in (await catch_all.claim_runs([named])).claimed] == [named.run_id]
            assert [run.run_id for run in (await other.claim_runs([unnamed])).claimed] == [unnamed.run_id]

    run(scenario())


def test_who_lists_the_model_takes_the_run(scene):
    async def scenario():
        (named,) = await scene.ask("named", settings={"model": "m1", "extra": {"odd": "\ud800 \x00"}})
        async with workers(scene.address, {"serves": ("m1",)}) as (lister,):
            assert len((await lister.claim_runs([named])).claimed) == 1

    run(scenario())


def test_a_call_goes_to_who_lists_its_function_else_to_the_catch_all(scene):
    async def scenario():
        listed, unlisted = await scene.call("a", "f", "g")
        async with workers(
            scene.address,
            FUNCTIONS | {"serves": ("f",)},
            FUNCTIONS | {"serves_all": True},
            # One of another kind lists for nobody.
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
                claim=call.claim,
            )

    run(scenario())


def test_who_serves_a_function_serves_the_built_in_one_that_cancels_it(scene):
    async def scenario():
        (builtin,) = await scene.call("a", "cancel_f", builtin=True)
        (own,) = await scene.call("b", "cancel_f", tools=("cancel_f",))
        async with workers(scene.address, FUNCTIONS | {"serves": ("f",)}) as (one,):
            assert [call.builtin for call in (await one.claim_calls([builtin, own])).claimed] == [True]


@pytest.mark.regression("call b")
def test_who_serves_a_function_of_that_name_serves_it_instead_of_the_built_in_one(scene):
    async def scenario():
        (builtin,) = await scene.call("a", "cancel_f", builtin=True)
        async with workers(
            scene.address, FUNCTIONS | {"serves": ("f",)}, FUNCTIONS | {"serves": ("cancel_f",)}
        ) as (of_f, own):
            assert (await of_f.claim_calls([builtin])).claimed == []
            assert len((await own.claim_calls([builtin])).claimed) == 1

    run(scenario())


@pytest.mark.regression("call f")
def test_a_call_of_what_a_worker_served_that_died_a_moment_ago_is_left_to_the_next_one_of_its_service(scene):
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
            # Nobody started it again.
            await die(dead)
            assert len((await other.claim_calls([call])).claimed) == 1

    run(scenario())


@pytest.mark.regression("call f")
def test_a_call_of_what_nobody_serves_is_anybodys_unless_the_tools_of_its_context_have_it(scene):
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


def test_a_heartbeat_names_the_work_that_is_over_and_the_work_that_was_lost(scene):
    async def scenario():
        over, taken, mine, finished = await scene.ask("over", "taken", "mine", "finished")
        async with workers(scene.address, {}, {}) as (one, other):
            await one.claim_runs([over, taken, mine, finished])
            held = [over.id, taken.id, mine.id, finished.id, "of nobody"]
            await one.release([taken.id])
            await other.take_over_runs(1)
            await one.finish([finished.id])
            await scene.tell(("over", INTERRUPTION))
            answer = await one.heartbeat(held)
            assert answer == claims.Heartbeat(
                True, frozenset([over.id]), frozenset([taken.id, finished.id, "of nobody"])
            )
            assert await one.heartbeat([]) == claims.Heartbeat(True)

    run(scenario())


def test_a_heartbeat_names_calls_that_are_settled_or_owed_a_cancel(scene):
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
            await scene.tell(("a", result))
            assert (await one.heartbeat(held)).obsolete == {settled.id}
            await scene.tell(("a", INTERRUPTION))
            # The dispatched one is forgotten, and those that were started are owed a cancel.
            assert (await one.heartbeat(held)).obsolete == set(held)

    run(scenario())


def test_who_was_dead_once_is_dead_for_ever(scene):
    async def scenario():
        async with workers(scene.address, {}, {}, {}) as (silent, left, gone):
            await die(silent)
            await claims.leave(left.connection, left.id)
            await gone.connection.execute("DELETE FROM workers WHERE worker_id = %s", (gone.id,))
            for one in (silent, left, gone):
                assert not (await one.heartbeat([])).alive
                assert not (await one.heartbeat([])).alive

    run(scenario())


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
                effect.id, "a", effect.version, effect.run_id, attempt=2, claim=taken.claim
            )
            await connected_for_long(another)
            assert await another.take_over_runs(10) == []
            await claims.reconnected(another.connection, another.id)
            await die(one)
            assert await another.take_over_runs(10) == []
            await connected_for_long(another)
            assert [run.attempt for run in await another.take_over_runs(10)] == [3]

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


def test_released_work_may_be_taken_by_anybody_at_once(scene):
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
def test_an_attempt_that_published_nothing_is_given_back_with_its_number(scene):
    async def scenario():
        (effect,) = await scene.ask("a")
        async with workers(scene.address, {}, {}) as (one, other):
            (first,) = (await one.claim_runs([effect])).claimed
            await one.release([effect.id], untried=True)
            (second,) = await other.take_over_runs(10)
            assert (second.attempt, second.claim == first.claim) == (1, False)
            # Given back once more by who does not have it any more: that takes nothing off.
            await one.release([effect.id], untried=True)
            await other.release([effect.id])
            assert [run.attempt for run in await one.take_over_runs(10)] == [2]

    run(scenario())


def test_two_takers_at_once_never_wait_and_never_take_the_same(scene):
    async def scenario():
        effects = await scene.ask(*(f"c{number}" for number in range(200)))
        async with workers(scene.address, {}, {}, {}) as (dead, one, other):
            await dead.claim_runs(effects)
            await die(dead)
            for taker in (one, other):
                await connected_for_long(taker)
            # One takes some and freezes before its commit; the other does not wait for it.
            async with one.connection.transaction():
                first = await one.take_over_runs(50)
                async with asyncio.timeout(ON_SERVERS):
                    second = await other.take_over_runs(1_000)
            taken = [run.effect_id for run in [*first, *second]]
            assert len(first) == 50
            assert sorted(taken) == sorted(effect.id for effect in effects)

    run(scenario())


def test_calls_are_taken_over_with_what_the_ledger_says_of_them(scene):
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
            await scene.start_call(interrupted, attempt=2, safe=False)
            await scene.tell(("a", INTERRUPTION))
            await one.release([dispatched.id, safe.id, interrupted.id])
            assert [(call.function_name, call.interrupted) for call in await one.take_over_calls(10)] == [
                ("g", True),
                ("h", True),
            ]
            assert await one.finish_over() == 2, "the forgotten call, and the one that waits for a person"

    run(scenario())


def test_nobody_takes_over_what_it_does_not_serve_or_what_is_parked(scene):
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


def test_claims_of_what_is_over_are_finished_as_that(scene):
    async def scenario():
        effects = await scene.ask("over", "open", "of the living")
        async with workers(scene.address, {}, {}, {}) as (dead, one, living):
            await dead.claim_runs(effects[:2])
            await living.claim_runs(effects[2:])
            await die(dead)
            await connected_for_long(one)
            await scene.tell(("over", INTERRUPTION), ("of the living", INTERRUPTION))
            assert await one.finish_over() == 1
            assert await finishes(one) == {"over": "over", "open": None, "of the living": None}
            assert [run.context_id for run in await one.take_over_runs(10)] == ["open"]

    run(scenario())


async def finishes(worker):
    cursor = await worker.connection.execute("SELECT context_id, finish FROM claims")
    return dict(await cursor.fetchall())


def test_a_worker_keeps_its_work_with_the_next_attempt_and_nobody_elses(scene):
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


def test_what_was_claimed_and_never_answered_is_given_back(scene):
    async def scenario():
        known, unknown = await scene.ask("a", "b")
        async with workers(scene.address, {}) as (one,):
            await one.claim_runs([known, unknown])
            assert await one.release_all_but([known.id]) == 1
            assert await one.release_all_but([known.id]) == 0
            assert [run.context_id for run in await one.take_over_runs(5)] == ["b"]

    run(scenario())


def test_old_claims_and_workers_are_forgotten_and_unfinished_ones_are_not(scene):
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


def test_open_work_that_nobody_claimed_is_found_under_the_ids_of_its_effects(scene):
    async def scenario():
        (claimed,) = await scene.ask("claimed")
        (named,) = await scene.ask("named", settings={"model": "m1"})
        (unclaimed,) = await scene.ask("unclaimed")
        await scene.ask("over")
        await scene.tell(("over", INTERRUPTION))
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
            await one.connection.execute("UPDATE runs SET opened_at = clock_timestamp()")
            assert await one.unclaimed_runs(10) == [], "they may be on their way"

    run(scenario())


def test_nobody_works_for_a_recording(scene):
    """What was open when the context became one is left alone, by whoever looks."""

    async def scenario():
        (asked, released) = await scene.ask("a", "b")
        (call,) = await scene.call("c", "f")
        async with workers(scene.address, {}, FUNCTIONS | {"serves_all": True}) as (one, of_calls):
            await one.claim_runs([released])
            await one.release([released.id])
            recording = {"type": "LLMContextFrame", "context": {"messages": []}, "react": False}
            await scene.tell(*((name, recording) for name in "abc"))
            assert (await one.claim_runs([asked])).claimed == []
            assert (await of_calls.claim_calls([call])).claimed == []
            assert await one.unclaimed_runs(10) == []
            assert await of_calls.unclaimed_calls(10) == []
            assert await one.take_over_runs(10) == []
            await scene.tell(("a", recording | {"react": True}))
            assert len((await one.claim_runs([asked])).claimed) == 1

    run(scenario())


def test_who_died_long_ago_is_said_to_have_left(scene):
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


def test_a_workers_role_may_do_all_of_this_and_nothing_else(scene):
    async def scenario():
        (effect,) = await scene.ask("a", settings={"model": "m"})
        (call,) = await scene.call("b", "f")
        async with workers(scene.address, {"serves_all": True}, FUNCTIONS | {"serves_all": True}) as (
            one,
            of_calls,
        ):
            for worker in (one, of_calls):
                await worker.connection.execute("SET ROLE frameledger_worker")
                await worker.heartbeat([effect.id])
                await claims.reconnected(worker.connection, worker.id)
                await claims.update_registration(worker.connection, worker.offer)
                await worker.release_all_but([])
                await worker.finish_over()
            assert len((await one.claim_runs([effect])).claimed) == 1
            assert len((await of_calls.claim_calls([call])).claimed) == 1
            await one.next_attempt(effect.id, 1)
            await one.release([effect.id])
            assert len(await one.take_over_runs(1)) == 1
            await of_calls.release([call.id])
            assert len(await of_calls.take_over_calls(1)) == 1
            await one.finish([effect.id])
            await one.unclaimed_runs(1)
            await of_calls.unclaimed_calls(1)
            await claims.purge(one.connection, claims_days=30, workers_days=30)
            await claims.reap_workers(one.connection)
            await claims.leave(one.connection, one.id)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await one.connection.execute("DELETE FROM runs")

    run(scenario())


def test_every_statement_reads_by_indexes(scene):
    """With many claims, dead workers and runs, none of what is asked every second reads a whole table."""

    class Explaining:
        """Explains what it is given to execute."""

        def __init__(self, connection):
            self.connection = connection
            self.plans = {}

        async def execute(self, statement, parameters=None):
            cursor = await self.connection.execute(b"EXPLAIN (FORMAT JSON) " + statement.encode(), parameters)
            self.plans[statement] = (await cursor.fetchone())[0][0]["Plan"]
            return await self.connection.execute("SELECT false, NULL, NULL, NULL WHERE false")

    async def scenario():
        (effect,) = await scene.ask("a")
        (call,) = await scene.call("b", "f")
        async with workers(scene.address, {}) as (one,):
            await one.connection.execute(MANY)
            await one.connection.execute("ANALYZE")
            explaining = Explaining(one.connection)
            ids = {f"e{number}": "token" for number in range(100)}
            await claims.claim_runs(explaining, one.id, [effect] * 10, 5)
            await claims.claim_calls(explaining, one.id, [call] * 10, 5)
            await claims.take_over_runs(explaining, one.id, 5)
            await claims.take_over_calls(explaining, one.id, 5)
            await claims.finish_over(explaining, one.id)
            await claims.unclaimed_runs(explaining, one.id, 5)
            await claims.unclaimed_calls(explaining, one.id, 5)
            await claims.finish(explaining, one.id, ids)
            await claims.release(explaining, one.id, ids)
            await claims.release_all_but(explaining, one.id, ids)
            with pytest.raises(AssertionError):
                await claims.heartbeat(explaining, one.id, ids)
        read_whole = {
            (node["Relation Name"], statement)
            for statement, plan in explaining.plans.items()
            for node in nodes(plan)
            # `projections` has a row for each partition, whatever lies in it.
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] != "projections"
        }
        assert len(explaining.plans) == 11
        assert read_whole == set()

    run(scenario())


MANY = """
    INSERT INTO workers (worker_id, kind, service, host, pid, lease_secs, slots, stopped_at, offers)
    SELECT 'w' || n, 'inference', 's', 'h', 1, 5, 1, CASE WHEN n % 50 > 0 OR n > 500 THEN now() END, '{}'
    FROM generate_series(1, 20000) AS n;
    INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id, finished_at, finish)
    SELECT 'e' || n, 'run', 'c' || n % 5000, n, 'r' || n, 's', 'w' || n % 500,
        CASE WHEN n % 100 > 0 THEN now() END, CASE WHEN n % 100 > 0 THEN 'done' END
    FROM generate_series(1, 50000) AS n;
    INSERT INTO runs (context_id, run_id, requested_version, opened_version, requested_at, opened_at, trigger, status)
    SELECT 'c' || n % 5000, 'r' || n, n, n, now(), now() - n * interval '1 second', 'x',
        CASE WHEN n % 100 = 0 THEN 'open' ELSE 'ended' END
    FROM generate_series(1, 50000) AS n;
    INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, chain, state)
    SELECT 'c' || n, 1, 1, now(), now(), 1, sha256(''), '{}' FROM generate_series(0, 4999) AS n;
    INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, chain, payload)
    SELECT 'c' || n, 1, gen_random_uuid(), now(), n, n % 4, 'x', 'applied', sha256(''), '{}'
    FROM generate_series(0, 4999) AS n;
    INSERT INTO projections (projection, topic, partition) SELECT 'contexts', 't', n FROM generate_series(4, 999) AS n;
    INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, dispatched_at, tool_call_id,
        function_name, status, arguments)
    SELECT 'c' || n % 5000, n, 0, now() - n * interval '1 second', now() - n * interval '1 second', 't' || n, 'f',
        CASE WHEN n % 100 = 0 THEN 'dispatched' ELSE 'done' END, '{}'
    FROM generate_series(1, 50000) AS n
"""


def nodes(plan):
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)

"""Two workers, of which one dies, is declared dead, or leaves."""

import asyncio

import pytest
from tests.bounds import ON_SERVERS
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    Gate,
    called,
    play,
    serving,
    stage_settings,  # noqa: F401  # a fixture
    talking,
)
from tests.support.tiers import long

from frameledger import derived
from frameledger.frames import FunctionCallInProgressFrame
from frameledger_services.functions import FunctionRegistry, ResultRefusedError

STARTED, RESULT = "FunctionCallInProgressFrame", "FunctionCallResultFrame"

pytestmark = CONNECTIONS_LEFT_OPEN


@pytest.mark.parametrize(("safe", "ending"), [(False, "ambiguous"), (True, "done")])
def test_a_worker_that_dies_leaves_an_unsafe_call_ambiguous_and_a_safe_one_to_the_next(
    settings, safe, ending
):
    attempts, entered = [], asyncio.Event()

    async def pay(params):
        attempts.append((params.call_attempt, params.idempotency_key))
        entered.set()
        if params.call_attempt == 1:
            await asyncio.Event().wait()
        await params.result_callback("paid")

    registries = [FunctionRegistry(), FunctionRegistry()]
    for registry in registries:
        registry.register_function("pay", pay, safe_to_retry=safe)

    async def scenario(services, talk):
        call = called("pay")
        await talk.call(call)
        async with asyncio.timeout(ON_SERVERS):
            await entered.wait()
        await talk.until_running(call.tool_call_id)
        row = await talk.call_row(call.tool_call_id)
        [first] = [service for service in services if row["worker"] == (await service.worker_id())]
        await first.cancel()
        assert await talk.settled(call.tool_call_id) == [ending]
        row = await talk.call_row(call.tool_call_id)
        if safe:
            assert [attempt for attempt, _ in attempts] == [1, 2]
            assert len({key for _, key in attempts}) == 1
            assert (row["attempt"], row["result"]) == (2, "paid")
        else:
            assert [attempt for attempt, _ in attempts] == [1]
            assert "Do not call it again" in await talk.told(call.tool_call_id)
        assert len(await talk.open_runs()) == 1

    play(settings, registries, scenario, service=f"pay-{ending}", all_services=True)


@pytest.mark.parametrize(
    ("kind", "ending", "words"),
    [long("timekeeper", "failed", "was not run"), ("functions", "ambiguous", "Do not call it again")],
)
def test_an_unsafe_handler_never_begins_where_somebody_had_started_the_call(settings, kind, ending, words):
    registry, ran = FunctionRegistry(), []

    async def pay(params):
        ran.append(params)

    registry.register_function(f"pay_{kind}", pay)

    async def run():
        async with talking(settings) as talk:
            # A worker that is dead now claimed the call, and started it as safe to retry.
            dead, call = f"dead-{kind}", called(f"pay_{kind}")
            await talk.call(call)
            row = await talk.call_row(call.tool_call_id)
            named = (talk.context_id, row["dispatched_version"], call.tool_call_id)
            await talk.execute(
                "INSERT INTO workers (worker_id, service, kind, host, pid, lease_secs, slots, offers, stopped_at) "
                "VALUES (%s, 'gone', %s, 'gone', 1, 1, 1, '{}', clock_timestamp())",
                (dead, kind),
            )
            await talk.execute(
                "INSERT INTO claims (effect_id, kind, context_id, version, tool_call_id, requested_version, "
                "ordinal, service, worker_id) VALUES (%s, 'call', %s, %s, %s, %s, %s, 'gone', %s)",
                (
                    derived.effect_id("call_function", *named),
                    *named,
                    row["requested_version"],
                    row["ordinal"],
                    dead,
                ),
            )
            await talk.publish(
                FunctionCallInProgressFrame(
                    function_name=call.function_name,
                    tool_call_id=call.tool_call_id,
                    arguments={},
                    cancel_on_interruption=True,
                    worker=dead,
                    call_attempt=1,
                    safe_to_retry=True,
                )
            )
            async with serving(settings, registry):
                assert await talk.settled(call.tool_call_id) == [ending]
            assert words in await talk.told(call.tool_call_id)
            assert ran == []

    asyncio.run(run())


def test_a_worker_that_is_judged_dead_stops_its_handler_and_says_nothing_more(settings):
    registry, gate, refused = FunctionRegistry(), Gate(), asyncio.Event()

    async def pay(params):
        try:
            await gate()
        finally:
            with pytest.raises(ResultRefusedError):
                await params.result_callback("late")
            refused.set()

    registry.register_function("pay", pay)

    async def scenario(service, talk):
        call = called("pay")
        await talk.call(call)
        await gate.until_entered()
        await talk.execute(
            "UPDATE workers SET stopped_at = clock_timestamp() WHERE worker_id = %s",
            (await service.worker_id(),),
        )
        # Its next session takes over what the previous one had started, and knows no more than another worker.
        assert await talk.settled(call.tool_call_id) == ["ambiguous"]
        assert gate.cancelled == 1
        assert refused.is_set()
        assert [kind for kind, *_ in await talk.log(of=call.tool_call_id)] == [STARTED, RESULT]

    play(settings, registry, scenario)


def test_a_drain_waits_for_unsafe_work_and_tells_what_it_breaks_off(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def slow(params):
        await gate()

    registry.register_function("slow", slow)
    hurried = settings.model_copy(update={"work_drain_secs": 0.3})

    async def scenario(service, talk):
        call = called("slow")
        await talk.call(call)
        await gate.until_entered()
        await service.stop()
        assert await talk.settled(call.tool_call_id) == ["ambiguous"]
        assert gate.cancelled == 1

    play(hurried, registry, scenario)

"""What stays as it was when a call began, and what does not: terms, order, handlers, and the life of the service."""

import asyncio

import pytest
from tests.integration.toolbench import CONNECTIONS_LEFT_OPEN, called, play, serving, stage, talking

from frameledger.frames import FunctionCallCancelFrame, FunctionCallResultProperties, InterruptionFrame
from frameledger_services.functions import FunctionRegistry, FunctionService, NotRunningError

pytestmark = CONNECTIONS_LEFT_OPEN


@pytest.fixture(scope="module", name="settings")
def a_stage(kafka, database_server, migrated_template):
    with stage(kafka, database_server, migrated_template) as settings:
        yield settings


def held():
    """A handler that waits until the event is set, and how often it was entered."""
    leave = asyncio.Event()
    entered: asyncio.Queue[str] = asyncio.Queue()

    async def handler(params):
        entered.put_nowait(params.tool_call_id)
        await leave.wait()
        await params.result_callback("to its end")

    return handler, leave, entered


def test_a_call_keeps_its_terms_and_its_handler_whatever_is_registered_meanwhile(settings):
    async def scenario(service, talk):
        handler, leave, entered = held()
        service.register_function("search", handler, cancel_on_interruption=False, timeout_secs=60)
        call = called("search")
        await talk.call(call)
        await asyncio.wait_for(entered.get(), 20)
        service.register_function("search", handler, cancel_on_interruption=True, timeout_secs=0.1)
        service.unregister_function("search")
        assert not service.has_function("search")
        await talk.until_running(call.tool_call_id)
        await talk.publish(InterruptionFrame())
        leave.set()
        assert await talk.settled(call.tool_call_id) == ["done"]
        row = await talk.call_row(call.tool_call_id)
        assert (row["synchronous"], row["timeout_secs"], row["result"]) == (False, 60, "to its end")

    play(settings, FunctionRegistry(), scenario)


def test_of_an_interrupted_queue_nothing_starts_any_more(settings):
    async def scenario(service, talk):
        handler, _, entered = held()
        service.register_function("book", handler)
        one, two = called("book"), called("book")
        await talk.call(one, two, run_in_parallel=False)
        await asyncio.wait_for(entered.get(), 20)
        await talk.publish(InterruptionFrame())
        assert await talk.settled(one.tool_call_id, two.tool_call_id) == ["cancelled", "forgotten"]
        assert entered.empty()

    play(settings, FunctionRegistry(), scenario)


def test_calls_of_ones_own_model_run_one_after_another_if_the_service_says_so(settings):
    registry, inside, most = FunctionRegistry(), 0, 0

    async def book(params):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await params.read_context()
        inside -= 1
        await params.result_callback(params.tool_call_id)

    registry.register_function("book", book)

    async def scenario(service, talk):
        calls = [called("book") for _ in range(3)]
        await service.run_function_calls(talk.context_id, calls)
        assert await talk.settled(*(call.tool_call_id for call in calls)) == ["done"] * 3
        kinds = [kind for kind, *_ in await talk.log() if kind.startswith("FunctionCall")]
        in_turn = ["FunctionCallInProgressFrame", "FunctionCallResultFrame"] * 3
        assert kinds == ["FunctionCallsStartedFrame", *in_turn]
        assert most == 1

    play(settings, registry, scenario, run_in_parallel=False)


def test_a_result_that_comes_too_late_is_visible_as_ignored_and_updates_nothing(settings):
    registry, answered, cancelled, updates = FunctionRegistry(), asyncio.Event(), asyncio.Event(), []

    async def updated():
        updates.append("updated")

    async def search(params):
        await params.result_callback(
            "found", properties=FunctionCallResultProperties(on_context_updated=updated)
        )

    registry.register_function("search", search, cancel_on_interruption=False)

    async def scenario(_, talk):
        call = called("search")
        await talk.call(call)
        await asyncio.wait_for(answered.wait(), 20)
        await talk.until_running(call.tool_call_id)
        await talk.publish(FunctionCallCancelFrame(function_name="search", tool_call_id=call.tool_call_id))
        cancelled.set()

        async def came():
            log = await talk.log(of=call.tool_call_id)
            return log[-1] if log[-1][0] == "FunctionCallResultFrame" else None

        assert await talk.until(came) == ("FunctionCallResultFrame", "ignored", "target_over")
        assert (await talk.call_row(call.tool_call_id))["status"] == "cancelled"
        await talk.until_claims_finished()
        assert updates == []

    async def passing(point):
        if point == "answered":
            answered.set()
            await cancelled.wait()

    play(settings, registry, scenario, passing=passing)


@pytest.mark.parametrize(("safe", "ending"), [(True, "cancelled"), (False, "ambiguous")])
def test_who_takes_over_an_interrupted_call_ends_it_and_asks_for_nothing(settings, safe, ending):
    async def run():
        handler, _, entered = held()
        name = f"book_{ending}"
        registries = [FunctionRegistry(), FunctionRegistry()]
        for registry in registries:
            registry.register_function(name, handler, safe_to_retry=safe)
        async with talking(settings) as talk:
            call = called(name)
            async with serving(settings, registries[0]) as dies:
                await talk.call(call)
                await asyncio.wait_for(entered.get(), 20)
                await talk.until_running(call.tool_call_id)
                await dies.cancel()
            await talk.publish(InterruptionFrame())
            async with serving(settings, registries[1]):
                assert await talk.settled(call.tool_call_id) == [ending]
            assert entered.empty()
            assert await talk.open_runs() == []

    asyncio.run(run())


def test_a_service_may_be_started_and_stopped_again_and_again(settings):
    registry = FunctionRegistry()

    @registry.register_direct_function
    def once_more():
        return "here"

    async def run():
        service = FunctionService(settings, registry, service="again")
        with pytest.raises(NotRunningError, match="start"):
            await service.run_function_calls("any", [called("once_more")])
        async with talking(settings) as talk:
            lives = set()
            for _ in range(2):
                await service.start()
                await service.start()
                lives.add(await service.worker_id())
                call = called("once_more")
                await talk.call(call)
                assert await talk.settled(call.tool_call_id) == ["done"]
                await service.stop()
            assert len(lives) == 2
        await service.stop()
        await service.cleanup()
        await service.cleanup()
        with pytest.raises(NotRunningError):
            await service.set_tools("any", [])

    asyncio.run(run())

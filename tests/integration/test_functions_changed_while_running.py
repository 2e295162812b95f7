"""Changes while a call runs: which options, order and handlers stay as they were at its start."""

import asyncio
import json

import pytest
from tests.bounds import ON_SERVERS
from tests.support.answerers import answering
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    called,
    play,
    serving,
    stage,
    stage_settings,  # noqa: F401  # a fixture
    talking,
)
from tests.support.tiers import long

from frameledger.frames import (
    FunctionCallCancelFrame,
    FunctionCallResultProperties,
    InterruptionFrame,
    LLMMessagesAppendFrame,
)
from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE, FunctionSchema
from frameledger_services.functions import (
    FunctionRegistry,
    FunctionService,
    NotRunningError,
    ReservedNameError,
)
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService

pytestmark = CONNECTIONS_LEFT_OPEN


def held():
    """Returns a handler that waits until the event is set, and a count of its starts."""
    leave = asyncio.Event()
    entered: asyncio.Queue[str] = asyncio.Queue()

    async def handler(params):
        entered.put_nowait(params.tool_call_id)
        await leave.wait()
        await params.result_callback("to its end")

    return handler, leave, entered


@pytest.mark.long
def test_a_call_keeps_its_terms_and_its_handler_whatever_is_registered_meanwhile(settings):
    async def scenario(service, talk):
        handler, leave, entered = held()
        service.register_function("search", handler, cancel_on_interruption=False, timeout_secs=60)
        call = called("search")
        await talk.call(call)
        await asyncio.wait_for(entered.get(), ON_SERVERS)
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
        await asyncio.wait_for(entered.get(), ON_SERVERS)
        await talk.publish(InterruptionFrame())
        assert await talk.settled(one.tool_call_id, two.tool_call_id) == ["cancelled", "forgotten"]
        assert entered.empty()

    play(settings, FunctionRegistry(), scenario)


def test_local_calls_run_one_after_another_if_the_service_says_so(settings):
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
        await asyncio.wait_for(answered.wait(), ON_SERVERS)
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

    async def failpoint(point):
        if point == "answered":
            answered.set()
            await cancelled.wait()

    play(settings, registry, scenario, failpoint=failpoint)


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
                await asyncio.wait_for(entered.get(), ON_SERVERS)
                await talk.until_running(call.tool_call_id)
                await dies.cancel()
            await talk.publish(InterruptionFrame())
            async with serving(settings, registries[1]):
                assert await talk.settled(call.tool_call_id) == [ending]
            assert entered.empty()
            assert await talk.open_runs() == []

    asyncio.run(run())


@pytest.mark.long
def test_an_advertised_handler_that_was_removed_by_hand_stays_away_while_its_tool_is_advertised(settings):
    async def search():
        return "found"

    async def look():
        return "seen"

    async def instead(params):
        await params.result_callback("nobody else was there")

    async def scenario(service, talk):
        async def outcomes(start):
            calls = [called("search"), called("look")]
            await start(calls)
            ids = [call.tool_call_id for call in calls]
            return await talk.settled(*ids), [await talk.told(one) for one in ids]

        async def run_here(calls):
            await service.run_function_calls(talk.context_id, calls)

        async def of_the_model(calls):
            await talk.call(*calls)

        await service.set_tools(talk.context_id, [search, look])
        assert await outcomes(of_the_model) == (["done"] * 2, ["found", "seen"])
        service.unregister_function("search")
        service.unregister_direct_function(look)
        missing = [
            MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE.format(function_name=one) for one in ("search", "look")
        ]
        assert await outcomes(run_here) == (["failed"] * 2, missing)
        # Named again in a list that already had it, it does not come back.
        await service.set_tools(talk.context_id, [search, look])
        assert await outcomes(run_here) == (["failed"] * 2, missing)
        service.register_function(None, instead)
        assert await outcomes(of_the_model) == (["done"] * 2, ["nobody else was there"] * 2)
        [*_, in_force] = await talk.payloads("LLMSetToolsFrame")
        assert [tool["function"]["name"] for tool in in_force["tools"]] == ["search", "look"]
        # Once it has left the list, it can be added like any other.
        await service.set_tools(talk.context_id, [])
        await service.set_tools(talk.context_id, [search, look])
        assert await outcomes(of_the_model) == (["done"] * 2, ["found", "seen"])

    play(settings, FunctionRegistry(), scenario)


# Below, a model calls by itself: the services decide which tool named `cancel_search` it is offered.


@pytest.fixture(name="answered")
def a_stage_with_a_model(kafka, database_server, migrated_template):
    """Yields a stage of the test's own: other tests here leave runs open, which this model would answer."""
    replies = [
        {"when": {"user": "Search"}, "say": [{"call": "search"}]},
        {"when": {"user": "Stop"}, "say": [{"call": "cancel_search"}]},
        {"when": {"result_of": "cancel_search"}, "say": [{"text": "So it is."}]},
        # The model is told about the cancelled call last, after the result of the cancel tool.
        {"when": {"result_of": "search", "result": "CANCELLED"}, "say": [{"text": "So it is."}]},
    ]
    script = Script.model_validate_json(json.dumps({"replies": replies}))
    with (
        stage(kafka, database_server, migrated_template) as settings,
        answering(settings, lambda _: ScriptedLLMService(script=script)),
    ):
        yield settings


async def say(talk, text):
    await talk.publish(LLMMessagesAppendFrame(messages=({"role": "user", "content": text},), run_llm=True))


async def call_of(talk, function_name):
    """Wait until the model has called this function. Returns the id of the call."""

    async def made():
        query = "SELECT tool_call_id FROM tool_calls WHERE context_id = %s AND function_name = %s"
        return next((call for (call,) in await talk.rows(query, function_name)), None)

    return await talk.until(made)


async def until_told(talk, text):
    """Wait until the model has received this, in a requested run."""

    async def said():
        last = (await talk.messages())[-1]
        return True if (last["role"], last.get("content")) == ("assistant", text) else None

    await talk.until(said)


async def offered_cancel_tools(talk):
    """Returns the functions whose cancel tools the model was offered, for each request."""
    starts = await talk.payloads("LLMFullResponseStartFrame")
    return [(start.get("metadata") or {}).get("cancel_tools", []) for start in starts]


@pytest.mark.regression("call b")
@pytest.mark.parametrize("advertised", [True, long(False)])
def test_an_applications_own_function_wins_over_the_cancel_tool_of_that_name(answered, advertised):
    registry = FunctionRegistry()
    handler, leave, entered = held()

    @registry.register_direct_function
    def cancel_search():
        return "the application was asked"

    schema = FunctionSchema(name="search", description="Searches.")
    registry.register_function(
        "search", handler, cancel_on_interruption=False, cancellable_by_llm=True, schema=schema
    )

    async def scenario(service, talk):
        await service.set_tools(talk.context_id, registry.schemas() if advertised else [schema])
        await say(talk, "Search.")
        search = await asyncio.wait_for(entered.get(), ON_SERVERS)
        await talk.until_running(search)
        await say(talk, "Stop.")
        cancel = await call_of(talk, "cancel_search")
        assert await talk.settled(cancel) == ["done"]
        assert await talk.told(cancel) == "the application was asked"
        assert (await talk.call_row(cancel))["builtin"] is False
        assert (await talk.call_row(search))["status"] == "running"
        await until_told(talk, "So it is.")
        assert not any(await offered_cancel_tools(talk))
        leave.set()
        assert await talk.settled(search) == ["done"]

    play(answered, registry, scenario)


def test_the_switch_of_the_service_lets_the_model_cancel_whatever_is_asynchronous(answered):
    registry = FunctionRegistry()
    handler, _, entered = held()
    for name, waits in (("search", False), ("book", True)):
        schema = FunctionSchema(name=name, description="Takes long.")
        registry.register_function(name, handler, cancel_on_interruption=waits, schema=schema)

    async def scenario(service, talk):
        await service.set_tools(talk.context_id, registry.schemas())
        with pytest.raises(ReservedNameError, match="cancel_search"):
            service.register_function("cancel_search", handler)
        service.register_function("cancel_book", handler)
        await say(talk, "Search.")
        search = await asyncio.wait_for(entered.get(), ON_SERVERS)
        await talk.until_running(search)
        await say(talk, "Stop.")
        cancel = await call_of(talk, "cancel_search")
        assert await talk.settled(cancel, search) == ["done", "cancelled"]
        assert "was cancelled" in await talk.told(cancel)
        assert (await talk.call_row(cancel))["builtin"] is True
        await until_told(talk, "So it is.")
        assert await offered_cancel_tools(talk) == [["search"]] * 3
        assert entered.empty()

    play(answered, registry, scenario, enable_async_tool_cancellation=True)


@pytest.mark.long
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

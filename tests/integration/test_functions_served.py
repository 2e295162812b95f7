"""Which handler serves a call, in which service, or none; tool lists, hooks and options."""

import asyncio
from typing import Any

import pytest
from tests.bounds import ON_SERVERS
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    Gate,
    called,
    play,
    returning,
    serving,
    stage_settings,  # noqa: F401  # a fixture
)
from tests.support.tiers import long

from frameledger.frames import FunctionCallResultProperties, LLMSetToolsFrame
from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE, FunctionSchema, ToolsSchema
from frameledger_services.functions import FunctionCallParams, FunctionRegistry, tool_options

pytestmark = CONNECTIONS_LEFT_OPEN

STARTED, RESULT = "FunctionCallInProgressFrame", "FunctionCallResultFrame"


def named(*names):
    """A registry of functions that answer with their own name."""
    registry = FunctionRegistry()
    for name in names:
        registry.register_function(name, answer_with_name)
    return registry


async def answer_with_name(params):
    await params.result_callback(params.function_name)


async def started(talk):
    query = "SELECT tool_call_id FROM frames WHERE context_id = %s AND type = %s ORDER BY version"
    return [call for (call,) in await talk.rows(query, STARTED)]


@pytest.mark.regression("call e", "call f", "trial m7")
@pytest.mark.parametrize("run_in_parallel", [long(True), False])
def test_a_function_that_the_model_made_up_is_answered_at_once_and_in_its_turn(settings, run_in_parallel):
    async def scenario(_, talk):
        await talk.publish(LLMSetToolsFrame(tools=[FunctionSchema(name="left", description="").to_openai()]))
        calls = [called(name, tool_call_id=name) for name in ("left", "nobody_has_this", "right")]
        await talk.call(*calls, run_in_parallel=run_in_parallel)
        ids = [call.tool_call_id for call in calls]
        assert await talk.settled(*ids) == ["done", "failed", "done"]
        missing = MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE.format(function_name="nobody_has_this")
        assert await talk.told("nobody_has_this") == missing
        assert await started(talk) == ids
        assert len(await talk.open_runs()) == 1

    play(settings, named("left", "right"), scenario)


@pytest.mark.regression("call e")
@pytest.mark.parametrize("run_in_parallel", [long(True), False])
def test_local_calls_start_in_their_order_also_when_nobody_serves_one(settings, run_in_parallel):
    async def scenario(service, talk):
        calls = [called(name, tool_call_id=name) for name in ("nobody", "left", "nobody_else", "right")]
        await service.run_function_calls(talk.context_id, calls)
        ids = [call.tool_call_id for call in calls]
        assert await talk.settled(*ids) == ["failed", "done", "failed", "done"]
        assert await started(talk) == ids

    play(settings, named("left", "right"), scenario, run_in_parallel=run_in_parallel)


@pytest.mark.regression("call f")
def test_a_function_that_the_context_has_as_a_tool_is_left_to_the_service_that_comes_back(settings):
    async def scenario(_, talk):
        await talk.publish(LLMSetToolsFrame(tools=[FunctionSchema(name="later", description="").to_openai()]))
        later, now, made_up = called("later"), called("now"), called("made_up")
        await talk.call(later, now, made_up)
        assert await talk.settled(now.tool_call_id, made_up.tool_call_id) == ["done", "failed"]
        assert (await talk.call_row(later.tool_call_id))["status"] == "dispatched"
        async with serving(settings, named("later")):
            assert await talk.settled(later.tool_call_id) == ["done"]
        assert await talk.told(later.tool_call_id) == "later"

    play(settings, named("now"), scenario)


@pytest.mark.regression("call b")
@pytest.mark.parametrize("here", [True, long(False)])
def test_an_applications_own_cancel_tool_wins_also_when_it_is_not_advertised(settings, here):
    """The announcement marks the call as built in."""

    async def wait(params):
        await asyncio.Event().wait()

    async def cancel_search(params):
        await params.result_callback("the application was asked")

    searching = FunctionRegistry()
    own = searching if here else FunctionRegistry()
    own.register_function("cancel_search", cancel_search)
    searching.register_function("search", wait, cancel_on_interruption=False, cancellable_by_llm=True)

    async def scenario(_, talk):
        search, cancel = called("search"), called("cancel_search", builtin=True)
        await talk.call(search)
        await talk.until_running(search.tool_call_id)
        await talk.call(cancel)
        assert await talk.settled(cancel.tool_call_id) == ["done"]
        assert await talk.told(cancel.tool_call_id) == "the application was asked"
        assert (await talk.call_row(search.tool_call_id))["status"] == "running"

    play(settings, searching if here else [searching, own], scenario)


@pytest.mark.long
@pytest.mark.regression("seed on_function_calls_started")
def test_where_handlers_run_the_hook_is_told_of_what_a_run_announced_once(settings):
    told: list[list[Any]] = []
    running: list[list[str]] = []

    async def look(params):
        running.append([call.tool_call_id for call in told[0]])
        await params.result_callback("seen")

    registry = named("right")
    registry.register_function("look", look)
    registry.register_function(
        "search", answer_with_name, cancel_on_interruption=False, cancellable_by_llm=True
    )

    async def scenario(services, talk):
        services[0].add_event_handler("on_function_calls_started", lambda _, calls: told.append(calls))
        calls = [
            called("look", {"at": [1]}, "0"),
            called("elsewhere", tool_call_id="1"),
            called("right", tool_call_id="2"),
            called("cancel_search", tool_call_id="3", builtin=True),
        ]
        await talk.call(*calls, run_in_parallel=False)
        assert await talk.settled("0", "1", "2", "3") == ["done"] * 4
        assert [[call.tool_call_id for call in calls] for calls in told] == [["0", "2"]]
        assert (told[0][0].function_name, told[0][0].arguments) == ("look", {"at": [1]})
        # The hook was called before the first of them began.
        assert running == [["0", "2"]]
        await talk.call(called("right", tool_call_id="4"))
        assert await talk.settled("4") == ["done"]
        assert [call.tool_call_id for call in told[1]] == ["4"]

    play(settings, [registry, named("elsewhere")], scenario, all_services=True)


@pytest.mark.regression("seed function_call_timeout_secs", "seed settings of functions")
def test_the_services_limit_and_its_switch_are_settings_which_none_means(settings):
    registry = named("book")
    registry.register_function("search", answer_with_name, cancel_on_interruption=False)
    own = settings.model_copy(
        update={"function_call_timeout_secs": 77.0, "enable_async_tool_cancellation": True}
    )

    async def scenario(service, talk):
        book = called("book")
        await talk.call(book)
        assert await talk.settled(book.tool_call_id) == ["done"]
        assert (await talk.call_row(book.tool_call_id))["timeout_secs"] == 77
        assert service.registry.cancels("cancel_search") == "search"

    play(own, registry, scenario, function_call_timeout_secs=None)
    play(settings, named("book"), _six_hundred, function_call_timeout_secs=None)


async def _six_hundred(_, talk):
    book = called("book")
    await talk.call(book)
    assert await talk.settled(book.tool_call_id) == ["done"]
    assert (await talk.call_row(book.tool_call_id))["timeout_secs"] == 600


@pytest.mark.regression("repair 1")
def test_the_time_that_a_call_waits_in_the_queue_is_not_taken_from_its_own_limit(settings):
    registry = FunctionRegistry()
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(params):
        entered.set()
        await leave.wait()
        await params.result_callback("slow")

    registry.register_function("slow", slow)
    registry.register_function("quick", answer_with_name, timeout_secs=60)

    async def scenario(_, talk):
        first, second = called("slow"), called("quick")
        await talk.call(first, second, run_in_parallel=False)
        await asyncio.wait_for(entered.wait(), ON_SERVERS)
        # As if it had waited in the queue for an hour.
        await talk.execute(
            "UPDATE tool_calls SET requested_at = requested_at - interval '1 hour' WHERE context_id = %s",
            (talk.context_id,),
        )
        leave.set()
        assert await talk.settled(second.tool_call_id) == ["done"]
        assert await talk.told(second.tool_call_id) == "quick"

    play(settings, registry, scenario)


@pytest.mark.regression("seed ToolsSchema in set_tools")
def test_a_tools_schema_is_advertised_whole_and_served_by_whoever_serves_its_names(settings):
    async def scenario(service, talk):
        look = FunctionSchema(name="look", description="Looks.")
        tools = ToolsSchema(standard_tools=[look], custom_tools={"gemini": [{"google_search": {}}]})
        await service.set_tools(talk.context_id, tools)
        call = called("look")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        [frame] = await talk.payloads("LLMSetToolsFrame")
        assert frame["tools"] == tools.to_wire()

    play(settings, named("look"), scenario)


class Shop:
    def __init__(self, name):
        self.name = name

    async def look(self, params):
        assert params.llm is None
        await params.result_callback(f"in {self.name}")

    def buy(self, what: str, params: FunctionCallParams):
        """Buys something."""
        assert params.llm is None
        return f"{what} of {self.name}"

    async def sell(self, what: str):
        """Sells something."""
        return f"{what} to {self.name}"


def test_handlers_may_be_bound_methods_and_without_a_provider_there_is_no_model(settings):
    registry, ours, theirs = FunctionRegistry(), Shop("ours"), Shop("theirs")
    registry.register_function("look", ours.look)
    registry.register_direct_function(ours.buy)

    async def scenario(service, talk):
        await service.set_tools(talk.context_id, [theirs.sell])
        what = {"what": "a fish"}
        calls = [called("look"), called("buy", what), called("sell", what)]
        await talk.call(*calls)
        ids = [call.tool_call_id for call in calls]
        assert await talk.settled(*ids) == ["done"] * 3
        assert [await talk.told(one) for one in ids] == ["in ours", "a fish of ours", "a fish to theirs"]
        service.unregister_direct_function(theirs.sell)
        assert not service.has_function("sell")

    play(settings, registry, scenario)


def test_on_context_updated_is_called_for_a_result_in_between_once_it_is_folded(settings):
    registry, updated = FunctionRegistry(), asyncio.Event()

    async def search(params):
        async def later():
            updated.set()

        between = FunctionCallResultProperties(is_final=False, run_llm=False, on_context_updated=later)
        await params.result_callback("so far", properties=between)
        await updated.wait()
        await params.result_callback("in the end")

    registry.register_function("search", search, cancel_on_interruption=False)

    async def scenario(_, talk):
        call = called("search")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        results = await talk.payloads("FunctionCallResultFrame")
        assert [one["result"] for one in results] == ["so far", "in the end"]

    play(settings, registry, scenario)


def test_the_catch_all_serves_what_nobody_lists(settings):
    registry = FunctionRegistry()

    async def anything(params):
        await params.result_callback(params.function_name)

    registry.register_function(None, anything)

    async def scenario(_, talk):
        call = called("whatever")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == "whatever"

    play(settings, registry, scenario)


def test_two_services_never_answer_for_each_other(settings):
    ours, theirs = FunctionRegistry(), FunctionRegistry()
    ours.register_direct_function(returning("left"))
    theirs.register_direct_function(returning("right"))

    async def scenario(_, talk):
        left, right = called("left"), called("right")
        await talk.call(left, right)
        assert await talk.settled(left.tool_call_id, right.tool_call_id) == ["done", "done"]
        left_row, right_row = (
            await talk.call_row(left.tool_call_id),
            await talk.call_row(right.tool_call_id),
        )
        assert left_row["worker"] != right_row["worker"]
        assert await talk.told(right.tool_call_id) == "right"

    play(settings, [ours, theirs], scenario)


def test_who_serves_is_looked_up_when_the_call_starts(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def first(params):
        await gate()
        await params.result_callback("first")

    async def old(params):
        await params.result_callback("old")

    async def new(params):
        await params.result_callback("new")

    registry.register_function("first", first)
    registry.register_function("second", old)

    async def scenario(service, talk):
        one, two = called("first"), called("second")
        await talk.call(one, two, run_in_parallel=False)
        await talk.until_running(one.tool_call_id)
        assert (await talk.call_row(two.tool_call_id))["status"] == "announced"
        service.register_function("second", new)
        gate.open.set()
        await talk.settled(one.tool_call_id, two.tool_call_id)
        assert await talk.told(two.tool_call_id) == "new"
        kinds = [kind for kind, *_ in await talk.log() if kind in (STARTED, RESULT)]
        assert kinds == [STARTED, RESULT, STARTED, RESULT]

    play(settings, registry, scenario)


def test_parallel_calls_start_in_the_order_of_the_batch_and_run_the_model_once(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def handle(params):
        await gate()
        await params.result_callback(params.tool_call_id)

    registry.register_function("handle", handle)

    async def scenario(_, talk):
        calls = [called("handle", {"number": number}) for number in range(5)]
        ids = [call.tool_call_id for call in calls]
        await talk.call(*calls)
        await talk.until_running(*ids)
        started = await talk.payloads(STARTED)
        assert [one["tool_call_id"] for one in started] == ids
        gate.open.set()
        await talk.settled(*ids)
        assert gate.entered == 5
        assert len(await talk.open_runs()) == 1

    play(settings, registry, scenario)


def test_tools_that_are_set_are_advertised_and_leave_when_they_are_omitted(settings):
    registry = FunctionRegistry()

    @tool_options(timeout_secs=7, cancel_on_interruption=False)
    async def search(text: str):
        """Searches.

        Args:
            text: For what.
        """
        return f"found {text}"

    async def by_hand(params):
        await params.result_callback("by hand")

    async def scenario(service, talk):
        await service.set_tools(talk.context_id, [search])
        assert service.has_function("search")
        [[functions]] = await talk.rows(
            "SELECT offers -> 'functions' FROM workers WHERE worker_id <> %s AND 'search' = ANY (serves) "
            "AND stopped_at IS NULL"
        )
        assert functions[0]["schema"]["function"]["parameters"]["required"] == ["text"]
        assert functions[0]["options"]["timeout_secs"] == 7
        call = called("search", {"text": "cats"})
        await talk.call(call)
        await talk.settled(call.tool_call_id)
        row = await talk.call_row(call.tool_call_id)
        assert (row["result"], row["synchronous"], row["timeout_secs"]) == ("found cats", False, 7)
        service.register_function("search", by_hand)
        await talk.publish(LLMSetToolsFrame(tools=()))

        async def left():
            return True if not registry.advertising_contexts() else None

        await talk.until(left)
        assert service.has_function("search")
        service.unregister_function("search")
        assert not service.has_function("search")

    play(settings, registry, scenario)

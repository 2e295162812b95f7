"""Failing handlers, invalid arguments and broken schemas: each settles its own call, and the next call is served."""

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import Annotated

import pytest
from pydantic import AfterValidator
from tests.bounds import ON_SERVERS
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    SETTLED,
    called,
    play,
    stage_settings,  # noqa: F401  # a fixture
    until_begun,
)
from tests.support.tiers import long

from frameledger.decoding import MAX_VALUE_BYTES
from frameledger.frames import EndFrame, InterruptionFrame, LLMContextEraseFrame, LLMSetToolsFrame
from frameledger_services.functions import FunctionRegistry, ResultRefusedError

pytestmark = CONNECTIONS_LEFT_OPEN


class Breaks(dict):
    """Raises like a mapping that another thread changes during the iteration."""

    def __init__(self):
        super().__init__(a=1)

    def items(self):
        raise RuntimeError("dictionary changed size during iteration")

    __iter__ = keys = values = items


async def properties_of_another_type(params):
    await params.result_callback("x", properties={"run_llm": False})


async def waits_for_too_much(params):
    await params.wait(for_="x" * MAX_VALUE_BYTES)


async def result_that_breaks(params):
    await params.result_callback(Breaks())


async def between_that_breaks(params):
    with suppress(ResultRefusedError):
        await params.result_callback(Breaks())
    raise KeyError("secret")


@pytest.mark.parametrize(
    "handler",
    [
        properties_of_another_type,
        long(waits_for_too_much),
        result_that_breaks,
        long(between_that_breaks),
    ],
)
def test_what_a_handler_says_wrongly_fails_its_own_call_only(settings, handler):
    registry = FunctionRegistry()

    async def well(params):
        await params.result_callback("well")

    registry.register_function("wrong", handler)
    registry.register_function("well", well)

    async def scenario(_, talk):
        wrong, right = called("wrong"), called("well")
        await talk.call(wrong)
        assert await talk.settled(wrong.tool_call_id) == ["failed"]
        assert "secret" not in await talk.told(wrong.tool_call_id)
        await talk.call(right)
        assert await talk.settled(right.tool_call_id) == ["done"]
        assert (await talk.call_row(wrong.tool_call_id))["attempt"] == 1

    play(settings, registry, scenario)


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, {"a": 1}),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/elsewhere"}}}, {"a": 1}),
        long({"$ref": "#"}, {}),
    ],
)
def test_arguments_that_cannot_be_checked_run_nothing(settings, parameters, arguments):
    registry = FunctionRegistry()
    ran: list[object] = []
    registry.register_function("checked", ran.append)

    async def scenario(_, talk):
        tool = {"type": "function", "function": {"name": "checked", "parameters": parameters}}
        await talk.publish(LLMSetToolsFrame(tools=(tool,)))
        call = called("checked", arguments)
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["failed"]
        assert "cannot be checked" in await talk.told(call.tool_call_id)
        assert ran == []

    play(settings, registry, scenario)


@pytest.mark.long
@pytest.mark.parametrize("schema", [{}, [], 5, "http://127.0.0.1:1/elsewhere"])
def test_a_tool_of_somebody_else_whose_schema_is_none_takes_any_arguments(settings, schema):
    registry = FunctionRegistry()

    async def any_arguments(params):
        await params.result_callback(params.arguments["a"])

    registry.register_function("anything", any_arguments)

    async def scenario(_, talk):
        tool = {"type": "function", "function": {"name": "anything", "parameters": {"$schema": schema}}}
        await talk.publish(LLMSetToolsFrame(tools=(tool,)))
        call = called("anything", {"a": 1})
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]

    play(settings, registry, scenario)


def test_a_validator_that_raises_something_else_refuses_the_arguments_without_its_words(settings):
    registry = FunctionRegistry()

    def validate(value: int) -> int:
        raise KeyError("the password is hunter2")

    @registry.register_direct_function
    def checked(number: Annotated[int, AfterValidator(validate)]):
        raise AssertionError("it never runs")

    async def scenario(_, talk):
        call = called("checked", {"number": 1})
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["failed"]
        assert "hunter2" not in await talk.told(call.tool_call_id)

    play(settings, registry, scenario)


def test_a_call_whose_start_is_too_large_for_the_log_is_cancelled(settings):
    registry = FunctionRegistry()
    ran: list[object] = []
    registry.register_function("large", ran.append)

    async def scenario(_, talk):
        # The announcement just fits; the start, which also names the worker, does not.
        call = called("large", {"text": "x" * (MAX_VALUE_BYTES - 340)})
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["cancelled"]
        assert ran == []

    play(settings, registry, scenario, service="large" * 20)


@pytest.mark.long
def test_a_plain_function_is_not_left_waiting_for_an_answer_when_its_lease_is_lost(settings):
    registry, said = FunctionRegistry(), []
    entered, leave, answered = threading.Event(), threading.Event(), threading.Event()

    def pay(params):
        entered.set()
        assert leave.wait(ON_SERVERS)
        try:
            params.result_callback("paid")
        except ResultRefusedError as error:
            said.append(error)
        answered.set()

    registry.register_function("pay", pay)

    async def scenario(service, talk):
        call = called("pay")
        await talk.call(call)
        assert await asyncio.to_thread(entered.wait, ON_SERVERS)
        worker_id = await service.worker_id()
        # The lease ends between its report and the publication.
        (await service._worker.ready()).lease.end()
        leave.set()
        assert await asyncio.to_thread(answered.wait, ON_SERVERS)
        assert len(said) == 1
        assert await talk.settled(call.tool_call_id) == ["ambiguous"]
        assert await service.worker_id() != worker_id

    play(settings, registry, scenario)


# Calls that still run when they are interrupted.


@pytest.mark.parametrize("ends_by", [long("returning"), "reporting", long("raising")])
def test_an_interrupted_plain_function_is_waited_for_and_told_as_what_it_was(settings, ends_by):
    registry, entered, leave = FunctionRegistry(), threading.Event(), threading.Event()

    def pay(params):
        entered.set()
        assert leave.wait(ON_SERVERS)
        if ends_by == "raising":
            raise RuntimeError("the password is hunter2")
        if ends_by == "reporting":
            params.result_callback("paid")

    def quick():
        return "quick"

    registry.register_function("pay", pay)
    registry.register_direct_function(quick)

    async def scenario(_, talk):
        call, after = called("pay"), called("quick")
        await talk.call(call)
        assert await asyncio.to_thread(entered.wait, ON_SERVERS)
        await talk.publish(InterruptionFrame())
        # It has until its deadline, which is longer than the time for stopping.
        await talk.call(after)
        await talk.settled(after.tool_call_id)
        runs = await talk.open_runs()
        leave.set()
        status = await talk.settled(call.tool_call_id)
        told = await talk.told(call.tool_call_id)
        assert (status, told) == {
            "returning": (["done"], "COMPLETED"),
            "reporting": (["done"], "paid"),
            "raising": (["failed"], "The function `pay` failed."),
        }[ends_by]
        # It requests no run.
        assert await talk.open_runs() == runs

    play(settings, registry, scenario, stop_secs=0.01)


@pytest.mark.parametrize(("safe", "ending"), [(False, "ambiguous"), long(True, "cancelled")])
def test_an_interrupted_handler_that_never_stops_is_given_up_at_its_deadline(settings, safe, ending):
    def attempt(deadline):
        registry, entered, leave = FunctionRegistry(), threading.Event(), threading.Event()
        interrupted = []

        def stubborn(params):
            entered.set()
            assert leave.wait(ON_SERVERS)

        registry.register_function("stubborn", stubborn, timeout_secs=deadline, safe_to_retry=safe)

        async def scenario(_, talk):
            call = called("stubborn")
            await talk.call(call)

            async def entered_in_time():
                """Returns whether the handler was entered before the call was over: its deadline may come first. None
                while neither is the case."""
                is_over = (await talk.call_row(call.tool_call_id))["status"] in SETTLED
                return entered.is_set() if is_over or entered.is_set() else None

            try:
                await talk.settled(call.tool_call_id, statuses=("running", *SETTLED))
                if not await talk.until(entered_in_time):
                    return
                await talk.publish(InterruptionFrame())
                status = await talk.settled(call.tool_call_id)
            finally:
                leave.set()
            if (await talk.call_row(call.tool_call_id))["interrupted_version"] is not None:
                assert status == [ending]
                assert await talk.open_runs() == []
                interrupted.append(call)

        play(settings, registry, scenario, stop_secs=0.3)
        return bool(interrupted)

    until_begun(attempt)


# What a long-running process must not accumulate.


@pytest.mark.parametrize(
    "end",
    [
        EndFrame,
        pytest.param(
            partial(LLMContextEraseFrame, why="asked to"),
            marks=pytest.mark.regression("fault 154"),
            id="erasure",
        ),
    ],
)
def test_the_handlers_that_a_conversation_brought_leave_with_its_end(settings, end):
    registry = FunctionRegistry()

    async def search(text: str): ...

    async def scenario(service, talk):
        async def left():
            return True if not registry.advertising_contexts() else None

        async def folded():
            """Returns True once the service knows that its tool list is folded; until then None. If the list were
            erased before, the service would wait for it for minutes."""
            return True if not service._running.tool_lists._publishing else None

        await service.set_tools(talk.context_id, [search])
        await talk.until(folded)
        await talk.publish(end())
        await talk.until(left)
        assert not service.has_function("search")
        # Tools that are set after the end are kept, because the conversation will continue.
        await service.set_tools(talk.context_id, [search])
        call = called("search", {"text": "cats"})
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        await talk.until(folded)
        await talk.publish(end())
        await talk.until(left)

    play(settings, registry, scenario)


@pytest.mark.regression("worker 12")
def test_a_tool_list_that_was_not_published_leaves_no_question_and_no_handler_behind(settings):
    registry = FunctionRegistry()

    async def search(text: str): ...

    async def scenario(service, talk):
        with pytest.raises(ValueError, match="context_id"):
            await service.set_tools("x" * 300, [search])

        async def left():
            return (
                True
                if not registry.advertising_contexts() and not service._running.statuses._questions
                else None
            )

        await talk.until(left)

    play(settings, registry, scenario)

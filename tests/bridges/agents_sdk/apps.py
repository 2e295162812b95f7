"""An SDK application: two agents with tools, a handoff and a guardrail, and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    ModelResponse,
    RunConfig,
    Runner,
    Usage,
    function_tool,
    handoff,
)
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails, ResponseUsage
from tests.bounds import IN_PROCESS

NAME = "test/scripted-1"
"""The name of the model with its provider, as applications write it."""

WAITS = "waits"
"""A step of a script: the model does not answer until it is cancelled."""


class ModelDownError(Exception):
    pass


class ScriptedModel(Model):
    """Answers each request with the next step: output items, an error, or `WAITS`. Its token counts are the numbers of
    items."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self.model = NAME
        self.steps = list(steps)
        self.asked: list[Any] = []
        self.waits = asyncio.Event()

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> Any:
        output, items = await self._step(input), len(input)
        usage = Usage(
            requests=1,
            input_tokens=items,
            output_tokens=len(output),
            total_tokens=items + len(output),
            input_tokens_details=_read(items - 1),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
        return ModelResponse(output=output, usage=usage, response_id=None)

    async def stream_response(self, system_instructions: Any, input: Any, *rest: Any, **more: Any) -> Any:
        output, items = await self._step(input), len(input)
        response = Response(
            id="resp",
            created_at=0,
            model=NAME,
            object="response",
            output=output,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
            usage=ResponseUsage(
                input_tokens=items,
                output_tokens=len(output),
                total_tokens=items + len(output),
                input_tokens_details=_read(items - 1),
                output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
            ),
        )
        yield ResponseCompletedEvent(response=response, type="response.completed", sequence_number=0)

    async def _step(self, given: Any) -> Any:
        self.asked.append(given)
        step = self.steps.pop(0)
        if step == WAITS:
            self.waits.set()
            await asyncio.Event().wait()
        if isinstance(step, BaseException):
            raise step
        return step


def _read(cached: int) -> InputTokensDetails:
    return InputTokensDetails.model_validate({"cached_tokens": cached, "cache_write_tokens": 0})


def says(text: str) -> Any:
    content = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(
        id="msg", type="message", role="assistant", status="completed", content=[content]
    )


def thinks(text: str) -> Any:
    return ResponseReasoningItem(id="rs", type="reasoning", summary=[], encrypted_content=text)


def calls(call_id: str, name: str, arguments: str = "{}") -> Any:
    return ResponseFunctionToolCall(
        arguments=arguments, call_id=call_id, name=name, type="function_call", id=f"fc_{call_id}"
    )


def shell_call(call_id: str, command: str) -> Any:
    return ResponseFunctionShellToolCall.model_validate(
        {
            "id": f"sh_{call_id}",
            "call_id": call_id,
            "action": {"commands": [command]},
            "status": "completed",
            "type": "shell_call",
        }
    )


@function_tool
def order_status(order: str) -> dict[str, Any]:
    """Where an order is."""
    return {"order": order, "place": "Zürich", "days": 1.0}


@function_tool
def broken() -> str:
    """Fails."""
    raise ValueError("no such thing")


@function_tool(failure_error_function=None)
def breaks_the_run() -> str:
    """Fails, and the run with it."""
    raise ValueError("no such thing")


@function_tool
async def never_ends() -> str:
    """Waits."""
    TOOL_WAITS.get().set()
    await asyncio.Event().wait()
    return ""


class _Flag:
    """Set when the tool waits, in the running test."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def get(self) -> asyncio.Event:
        return self._event

    def renew(self) -> None:
        self._event = asyncio.Event()


TOOL_WAITS = _Flag()


def front_desk(model: ScriptedModel, checked_first: bool = False) -> Agent[Any]:
    """Returns the first agent. Its guardrail checks the input concurrently with the model, or before it."""

    async def is_about_secrets(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        # Its input includes the history.
        asked = given if isinstance(given, str) else given[-1]
        trips = "secret" in str(asked)
        if trips and not checked_first:
            await model.waits.wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=trips)

    billing: Agent[Any] = Agent(name="billing", model=model, tools=[order_status])
    return Agent(
        name="front desk",
        model=model,
        tools=[order_status, broken, breaks_the_run, never_ends],
        handoffs=[handoff(billing)],
        input_guardrails=[
            InputGuardrail(guardrail_function=is_about_secrets, run_in_parallel=not checked_first)
        ],
    )


CONFIG = RunConfig(tracing_disabled=True)


@dataclass
class App:
    """Runs turns with a session and optional hooks. Call numbers continue from turn to turn."""

    session: Any
    hooks: Any = None
    numbers: Any = field(default_factory=lambda: count(1))

    async def turn(self, kind: str, said: str, streamed: bool = False) -> None:
        """Run one turn of this kind to its end, successful or not."""
        number = next(self.numbers)
        call_id = f"call_{number}"
        steps: dict[str, list[Any]] = {
            "plain": [[thinks("…"), says(f"Answer {number}: é😀")]],
            "call": [
                [says("I look."), calls(call_id, "order_status", '{"order": "7"}')],
                [says(f"On its way, {number}.")],
            ],
            "failing call": [[calls(call_id, "broken")], [says("That did not work.")]],
            "handoff": [
                [calls(call_id, "transfer_to_billing")],
                [calls(f"{call_id}b", "order_status", '{"order":"8"}')],
                [says("Billing here.")],
            ],
            "tripwire": [WAITS],
            "cancelled": [WAITS],
            "cancelled in a call": [[calls(call_id, "never_ends")]],
            "model down": [ModelDownError()],
            "broken off by a call": [[calls(call_id, "breaks_the_run")]],
        }
        model = ScriptedModel(steps[kind])
        TOOL_WAITS.renew()
        running = asyncio.ensure_future(self._run(front_desk(model, checked_first=streamed), said, streamed))
        if kind.startswith("cancelled"):
            async with asyncio.timeout(IN_PROCESS):
                await (TOOL_WAITS.get() if kind.endswith("call") else model.waits).wait()
            running.cancel()
        expected = {
            "tripwire": InputGuardrailTripwireTriggered,
            "cancelled": asyncio.CancelledError,
            "cancelled in a call": asyncio.CancelledError,
            "model down": ModelDownError,
            "broken off by a call": Exception,
        }.get(kind)
        try:
            async with asyncio.timeout(IN_PROCESS):
                await running
        except BaseException as error:
            if expected is None or not isinstance(error, expected):
                raise
        else:
            assert expected is None, kind

    async def _run(self, agent: Agent[Any], said: str, streamed: bool) -> None:
        options: Any = {"session": self.session, "hooks": self.hooks, "run_config": CONFIG}
        if self.hooks is None:
            await self._finished(agent, said, streamed, options)
            return
        async with self.hooks:
            await self._finished(agent, said, streamed, options)

    async def _finished(self, agent: Agent[Any], said: str, streamed: bool, options: Any) -> None:
        if not streamed:
            await Runner.run(agent, said, **options)
            return
        result = Runner.run_streamed(agent, said, **options)
        try:
            async for _ in result.stream_events():
                pass
        finally:
            # A stream that is not read to its end leaves the run open; the application ends it.
            result.cancel()


TURNS = (
    *(
        "plain",
        "call",
        "failing call",
        "handoff",
        "tripwire",
        "cancelled",
        "cancelled in a call",
        "model down",
    ),
    "broken off by a call",
)

"""The handler of the tools `cancel_<name>`, by which a model cancels calls that it made.

The tool is safe to run again: the id of its cancel frame is derived from the tool's own call, so the next attempt finds
the frame on the log and reports its outcome instead of cancelling another call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

from frameledger.frames import AnyFrame, FunctionCallCancelFrame, FunctionCallFromLLM
from frameledger.ids import Version
from frameledger_services.functions.call_frames import FRAMES, CallAttempt
from frameledger_services.functions.call_status import FOLDED_SECONDS, CallStatusReader
from frameledger_services.store import tool_calls
from frameledger_services.store.connections import Connections
from frameledger_services.store.tool_calls import CancellableCall

MAX_LISTED = 20
"""The maximum number of calls that a message to the model lists, and of characters of the arguments of each: they cost
tokens."""

MAX_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class NothingCancelled:
    """Why nothing is cancelled, for the model."""

    why: str


def choose_call(
    function_name: str, running: Sequence[CancellableCall], tool_call_id: str | None
) -> CancellableCall | NothingCancelled:
    """Returns the call that the model means, or a message that lists the running ones. A blank id counts as none:
    models write it for an optional argument."""
    if not running:
        return NothingCancelled(f"Nothing was cancelled: no call of `{function_name}` is running.")
    for call in running:
        if call.tool_call_id == tool_call_id:
            return call
    if tool_call_id and tool_call_id.strip():
        return NothingCancelled(
            f"Nothing was cancelled: {tool_call_id!r} is no running call of `{function_name}`. "
            f"Running are: {_listed(running)}."
        )
    if len(running) > 1:
        return NothingCancelled(
            f"Nothing was cancelled: {len(running)} calls of `{function_name}` are running, so say which one by its "
            f"tool_call_id. Running are: {_listed(running)}."
        )
    return running[0]


@dataclass(frozen=True, slots=True)
class CancelHandler:
    """One call of a cancel tool."""

    call: CallAttempt
    function_name: str
    """The function whose calls it cancels."""

    connections: Connections
    statuses: CallStatusReader
    publish: Callable[[AnyFrame], Awaitable[object]]
    hook: Callable[[Sequence[FunctionCallFromLLM]], Awaitable[None]]

    async def cancel(self, tool_call_id: str | None) -> str:
        """Cancel the call that the model means. Returns the result for the model."""
        frame_id = str(uuid5(FRAMES, f"{self.call.scope}:cancels"))
        context_id = self.call.context_id
        earlier = await self.connections.read(tool_calls.call_of_frame, context_id, frame_id)
        if earlier is not None:
            return self._message(earlier.tool_call_id, earlier.outcome)
        running = await self.connections.read(tool_calls.running_async, context_id, self.function_name)
        choice = choose_call(self.function_name, running, tool_call_id)
        if isinstance(choice, NothingCancelled):
            return choice.why
        frame = FunctionCallCancelFrame(
            id=frame_id,
            function_name=self.function_name,
            tool_call_id=choice.tool_call_id,
            run_llm=False,
            opened_version=Version(choice.requested_version),
        )
        async with asyncio.timeout(FOLDED_SECONDS), self.statuses.folding(context_id, frame_id) as folded:
            await self.publish(frame)
            outcome = (await folded).outcome
        if outcome == "applied":
            cancelled = FunctionCallFromLLM(
                function_name=self.function_name,
                tool_call_id=choice.tool_call_id,
                arguments=choice.arguments,
            )
            await self.hook([cancelled])
        return self._message(choice.tool_call_id, outcome)

    def _message(self, tool_call_id: str, outcome: str | None) -> str:
        if outcome == "applied":
            return f"The call {tool_call_id} of `{self.function_name}` was cancelled."
        return (
            f"Nothing was cancelled: the call {tool_call_id} of `{self.function_name}` had ended meanwhile. "
            "Its result is in the conversation."
        )


def _listed(running: Sequence[CancellableCall]) -> str:
    shown = [f"{call.tool_call_id} with {_short(call.arguments)}" for call in running[:MAX_LISTED]]
    more = len(running) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _short(arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."

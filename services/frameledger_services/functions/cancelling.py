"""The tools `cancel_<name>`, by which a model cancels what it started (semantics 5.8).

If the process dies between two lines of `cancel`: the tool is safe to run again. The cancel frame has an id that
follows from the call of the tool alone, and the next attempt finds it on the log and says what became of it, instead
of cancelling another call.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

from psycopg import AsyncConnection

from frameledger.frames import AnyFrame, FunctionCallCancelFrame, FunctionCallFromLLM
from frameledger.ids import Version
from frameledger_services.functions.call_frames import FRAMES, Call
from frameledger_services.functions.ledger import FOLDED_SECONDS, Ledger
from frameledger_services.store.connections import Connections
from frameledger_services.store.contexts import loads

MOST_LISTED = 20
"""Calls that a refusal lists, and characters of each one's arguments that it shows: the model pays for them."""

MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class RunningCall:
    """An asynchronous call that goes on."""

    tool_call_id: str
    requested_version: int
    arguments: Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is cancelled, for the model to read."""

    why: str


def chosen(
    function_name: str, running: Sequence[RunningCall], tool_call_id: str | None
) -> RunningCall | Refusal:
    """The call that the model means. When it cannot be told, the refusal lists those that run."""
    if not running:
        return Refusal(f"Nothing was cancelled: no call of `{function_name}` is running.")
    if tool_call_id is not None:
        for call in running:
            if call.tool_call_id == tool_call_id:
                return call
        return Refusal(
            f"Nothing was cancelled: {tool_call_id!r} is no running call of `{function_name}`. "
            f"Running are: {_listed(running)}."
        )
    if len(running) > 1:
        return Refusal(
            f"Nothing was cancelled: {len(running)} calls of `{function_name}` are running, so say which one by its "
            f"tool_call_id. Running are: {_listed(running)}."
        )
    return running[0]


@dataclass(frozen=True, slots=True)
class CancelTool:
    """One call of a cancel tool, as the service runs it."""

    call: Call
    function_name: str
    """The function whose calls it cancels."""

    reading: Connections
    ledger: Ledger
    publish: Callable[[AnyFrame], Awaitable[object]]
    tell: Callable[[Sequence[FunctionCallFromLLM]], Awaitable[None]]

    async def cancel(self, tool_call_id: str | None) -> str:
        """Cancel what the model means; the result that it reads."""
        frame_id = str(uuid5(FRAMES, f"{self.call.scope}:cancels"))
        context_id = self.call.context_id
        earlier = await self.reading.read(_cancelled_before, context_id, frame_id)
        if earlier is not None:
            return self._outcome(*earlier)
        running = await self.reading.read(_running, context_id, self.function_name)
        choice = chosen(self.function_name, running, tool_call_id)
        if isinstance(choice, Refusal):
            return choice.why
        frame = FunctionCallCancelFrame(
            id=frame_id,
            function_name=self.function_name,
            tool_call_id=choice.tool_call_id,
            run_llm=False,
            opened_version=Version(choice.requested_version),
        )
        async with asyncio.timeout(FOLDED_SECONDS), self.ledger.folding(context_id, frame_id) as folded:
            await self.publish(frame)
            outcome = (await folded).outcome
        if outcome == "applied":
            cancelled = FunctionCallFromLLM(
                function_name=self.function_name,
                tool_call_id=choice.tool_call_id,
                arguments=choice.arguments,
            )
            await self.tell([cancelled])
        return self._outcome(choice.tool_call_id, outcome)

    def _outcome(self, tool_call_id: str, outcome: str | None) -> str:
        if outcome == "applied":
            return f"The call {tool_call_id} of `{self.function_name}` was cancelled."
        return (
            f"Nothing was cancelled: the call {tool_call_id} of `{self.function_name}` had ended meanwhile. "
            "Its result is in the conversation."
        )


async def _cancelled_before(
    connection: AsyncConnection[Any], context_id: str, frame_id: str
) -> tuple[str, str] | None:
    cursor = await connection.execute(
        "SELECT tool_call_id, outcome FROM frames WHERE context_id = %s AND frame_id = %s::uuid",
        (context_id, frame_id),
    )
    return await cursor.fetchone()


async def _running(
    connection: AsyncConnection[Any], context_id: str, function_name: str
) -> list[RunningCall]:
    cursor = await connection.execute(
        """
        SELECT tool_call_id, requested_version, arguments::text
        FROM tool_calls
        WHERE context_id = %s AND function_name = %s AND status IN ('running', 'waiting') AND synchronous = false
        ORDER BY requested_version, ordinal
        """,
        (context_id, function_name),
    )
    return [RunningCall(call, version, loads(text)) for call, version, text in await cursor.fetchall()]


def _listed(running: Sequence[RunningCall]) -> str:
    shown = [f"{call.tool_call_id} with {_short(call.arguments)}" for call in running[:MOST_LISTED]]
    more = len(running) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _short(arguments: Any) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."

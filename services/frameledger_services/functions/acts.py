"""Cancelling acts: an interruption cancels several calls at once, and the hook is told once, of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from frameledger.frames import FunctionCallFromLLM
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.tails import Tails
from frameledger_services.store.connections import Connections, DatabaseError

Key = tuple[int, int]
"""A call in its context: the version that announced it, and its place there."""

Tell = Callable[[Sequence[FunctionCallFromLLM]], Awaitable[None]]


@dataclass(slots=True)
class _Act:
    awaited: set[Key]
    """Calls of this process that the act cancels, and of which it is not known yet how they ended."""

    cancelled: list[FunctionCallFromLLM] = field(default_factory=list)


class Acts:
    """The interruptions whose calls are being stopped in this process.

    A call joins the act that interrupted it, then says that it was cancelled, if it was, and leaves. The hook is told
    when the last one has left.
    """

    def __init__(self, reading: Connections, tails: Tails, tell: Tell) -> None:
        self._reading = reading
        self._tails = tails
        self._tell = tell
        self._here: dict[str, set[Key]] = {}
        self._acts: dict[tuple[str, int], _Act] = {}
        self._joining = asyncio.Lock()

    def entered(self, call: Call) -> None:
        """A call of this process begins."""
        self._here.setdefault(call.context_id, set()).add(_key(call))

    async def joined(self, call: Call, version: int) -> None:
        """The interruption at that version cancels the call. Called twice it does nothing."""
        async with self._joining:
            if (call.context_id, version) in self._acts:
                return
            interrupted: set[Key] = set()
            # Without the database the hook is told of each call by itself; the call is stopped all the same.
            with suppress(DatabaseError):
                interrupted = await self._reading.read(_interrupted, call.context_id, version)
            here = self._here.get(call.context_id, set())
            self._acts[call.context_id, version] = _Act((interrupted & here) | {_key(call)})

    def cancelled(self, call: Call, version: int) -> None:
        """It was cancelled by that act. The hook is not told of built-in tools."""
        act = self._acts.get((call.context_id, version))
        if act is not None and not call.builtin:
            act.cancelled.append(call.from_llm)

    def left(self, call: Call) -> None:
        """A call of this process is over, however it ended."""
        here = self._here.get(call.context_id, set())
        here.discard(_key(call))
        if not here:
            self._here.pop(call.context_id, None)
        for place, act in tuple(self._acts.items()):
            if place[0] == call.context_id and _key(call) in act.awaited:
                act.awaited.discard(_key(call))
                if not act.awaited:
                    del self._acts[place]
                    if act.cancelled:
                        self._tails.start(self._told(act.cancelled))

    async def _told(self, cancelled: Sequence[FunctionCallFromLLM]) -> None:
        await self._tell(cancelled)


async def _interrupted(connection: AsyncConnection[Any], context_id: str, version: int) -> set[Key]:
    cursor = await connection.execute(
        "SELECT requested_version, ordinal FROM tool_calls "
        "WHERE context_id = %s AND interrupted_version = %s AND status IN ('running', 'waiting')",
        (context_id, version),
    )
    return {(version, ordinal) for version, ordinal in await cursor.fetchall()}


def _key(call: Call) -> Key:
    return (call.requested_version, call.ordinal)

"""Calls the hooks of an application: `on_function_calls_started` and `on_function_calls_cancelled`, each once for the
calls that start or are cancelled together, and `on_context_updated`. If the process dies, they are not called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from frameledger.frames import FunctionCallFromLLM
from frameledger_services import logs
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_status import FOLDED_SECONDS, CallStatusReader
from frameledger_services.providers.hooks import failure_of
from frameledger_services.store import tool_calls
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.store.tool_calls import CallKey

REMEMBERED = 1_000
"""The number of newest announcements that are kept. The calls of one announcement arrive almost together, unless they
are queued."""

CallHook = Callable[[Sequence[FunctionCallFromLLM]], Awaitable[None]]
StartTask = Callable[[Coroutine[Any, Any, None]], object]

_log = logs.get_logger("functions")


class StartedHook:
    """Calls `on_function_calls_started` once for each announcement that has claimed calls in this process."""

    def __init__(
        self,
        connections: Connections,
        serves: Callable[[str, str], bool],
        has_hooks: Callable[[], bool],
        hook: CallHook,
    ) -> None:
        """`serves(function_name, context_id)` returns whether this process runs that function for that context. While
        `has_hooks()` is false, nothing is read."""
        self._connections = connections
        self._serves = serves
        self._has_hooks = has_hooks
        self._hook = hook
        self._announced: dict[tuple[str, int], None] = {}

    async def call_begins(self, call: CallAttempt) -> None:
        """If this is the first call of its announcement, call the hook with all calls that are run here."""
        announcement = (call.context_id, call.requested_version)
        if call.builtin or announcement in self._announced or not self._has_hooks():
            return
        self._announced[announcement] = None
        if len(self._announced) > REMEMBERED:
            del self._announced[next(iter(self._announced))]
        calls = [call.from_llm]
        try:
            calls = await self._connections.read(
                tool_calls.announced_at, call.context_id, call.requested_version
            )
        except DatabaseError as error:
            # The other calls of the announcement may be missing in the hook; this one is known.
            _log.warning("call.announcement_unreadable", **call.names(), error=str(error))
        if here := [one for one in calls if self._serves(one.function_name, call.context_id)]:
            await self._hook(here)


@dataclass(slots=True)
class _Batch:
    """The calls of this process that one interruption cancels."""

    pending: set[CallKey]
    """The calls whose end is not known yet."""

    cancelled: list[FunctionCallFromLLM] = field(default_factory=list)


class CancelledHook:
    """Calls `on_function_calls_cancelled` once for each interruption, when all its calls in this process have ended."""

    def __init__(self, connections: Connections, start_task: StartTask, hook: CallHook) -> None:
        self._connections = connections
        self._start_task = start_task
        self._hook = hook
        self._here: dict[str, set[CallKey]] = {}
        self._batches: dict[tuple[str, int], _Batch] = {}
        self._joining = asyncio.Lock()

    def call_begins(self, call: CallAttempt) -> None:
        self._here.setdefault(call.context_id, set()).add(call.key)

    async def interrupted(self, call: CallAttempt, version: int) -> None:
        """Record that the frame at that version interrupted the call. A second call does nothing."""
        async with self._joining:
            if (batch := self._batches.get((call.context_id, version))) is not None:
                # It may have begun here later than the others: taken over from a worker that died.
                batch.pending.add(call.key)
                return
            together: set[CallKey] = set()
            # Without the database the hook is called separately for each call; the call is stopped nevertheless.
            with suppress(DatabaseError):
                together = await self._connections.read(tool_calls.interrupted_by, call.context_id, version)
            here = self._here.get(call.context_id, set())
            self._batches[call.context_id, version] = _Batch((together & here) | {call.key})

    def cancelled(self, call: CallAttempt, version: int) -> None:
        """Record that the call was cancelled because of that interruption. The hook does not get built-in tools."""
        batch = self._batches.get((call.context_id, version))
        if batch is not None and not call.builtin:
            batch.cancelled.append(call.from_llm)

    def call_ended(self, call: CallAttempt) -> None:
        """Record that the call has ended in this process, however it ended."""
        here = self._here.get(call.context_id, set())
        here.discard(call.key)
        if not here:
            self._here.pop(call.context_id, None)
        for key, batch in tuple(self._batches.items()):
            if key[0] == call.context_id and call.key in batch.pending:
                batch.pending.discard(call.key)
                if not batch.pending:
                    del self._batches[key]
                    if batch.cancelled:
                        self._start_task(self._call_hook(batch.cancelled))

    async def _call_hook(self, cancelled: Sequence[FunctionCallFromLLM]) -> None:
        await self._hook(cancelled)


async def context_updated(
    statuses: CallStatusReader,
    call: CallAttempt,
    hook: Callable[[], Awaitable[None]],
    frame_id: str,
    published: asyncio.Event,
) -> None:
    """Wait until a result is folded, and call its `on_context_updated` if it was applied. Start it before the result is
    published; the time limit counts from when `published` is set, since an unreachable broker may delay that."""
    try:
        async with statuses.folding(call.context_id, frame_id) as folded:
            await published.wait()
            async with asyncio.timeout(FOLDED_SECONDS):
                outcome = (await folded).outcome
    except TimeoutError:
        _log.warning("call.context_updated_skipped", **call.names())
        return
    if outcome == "applied":
        error = await failure_of(hook)
        if error is not None:
            _log.error("call.context_updated_failed", **call.names(), exc_info=error)

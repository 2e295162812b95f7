"""The open calls of workers' answers: which process runs each call, and whether it has started.

A call is kept from its announcement to its end, so memory is bounded by the number of open calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from frameledger.frames import (
    AnyFrame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
)
from frameledger_services.client import StoredFrame


@dataclass(slots=True)
class OpenCall:
    """A call that a worker announced."""

    announced_version: int | None = None
    """The version of its announcement; None if that was not received."""

    is_sequential: bool = False
    """Whether it starts only after the earlier calls have ended or wait for a person."""

    is_served: bool | None = None
    """True if a function service runs it and publishes its frames, False if the application does; None if not known."""

    is_started_on_log: bool = False
    """Whether its start is stored and applied."""

    is_answered: bool = False
    """Whether Pipecat has received its result or its cancellation."""

    started_in_pipecat: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once Pipecat has received its start, or the call will not start."""

    lets_the_next_begin: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it has ended on the log or waits for a person."""

    frames: asyncio.Queue[AnyFrame] = field(default_factory=asyncio.Queue)
    """Its frames from the log, unless the application runs it and publishes them itself."""

    group: tuple[str, ...] = ()
    """The ids of all calls of its answer, once they are started."""

    group_id: str | None = None


class OpenCalls:
    """The open calls in the order of their announcement."""

    def __init__(self) -> None:
        self._calls: dict[str, OpenCall] = {}
        self._starts: dict[UUID, asyncio.Future[StoredFrame]] = {}

    def __contains__(self, id_: str) -> bool:
        return id_ in self._calls

    def __getitem__(self, id_: str) -> OpenCall:
        return self._calls[id_]

    def get(self, id_: str) -> OpenCall | None:
        return self._calls.get(id_)

    def take(self, stored: StoredFrame, frame: AnyFrame) -> None:
        """Update the calls by a stored frame. `frame` is its decoded payload."""
        start = self._starts.get(stored.frame_id)
        if start is not None and not start.done():
            start.set_result(stored)
        if stored.outcome != "applied":
            return
        match frame:
            case FunctionCallsStartedFrame(run_id=str()) as announced:
                for one in announced.function_calls:
                    if (known := self.get(one.tool_call_id)) is None or not known.group:
                        self._calls[one.tool_call_id] = OpenCall(
                            stored.version, not announced.run_in_parallel
                        )
            case FunctionCallInProgressFrame() as begun:
                if (call := self.get(begun.tool_call_id)) is not None:
                    call.is_started_on_log = True
                    if start is not None:
                        call.is_served = False
                    self._note(call, begun, begun.waiting is not None)
            case FunctionCallResultFrame() as result:
                is_final = result.properties is None or result.properties.is_final
                if (call := self.get(result.tool_call_id)) is not None:
                    self._note(call, result, is_final)
                    self._drop_if_over(result.tool_call_id, call, is_final)
            case FunctionCallCancelFrame() as cancelled:
                if (call := self.get(cancelled.tool_call_id)) is not None:
                    self._note(call, cancelled, True)
                    self._drop_if_over(cancelled.tool_call_id, call, True)
            case InterruptionFrame() as interruption:
                for call in self._calls.values():
                    # The process that runs a call cancels it, and publishes the cancellation.
                    if not call.is_started_on_log:
                        self._note(call, interruption, True)

    def _note(self, call: OpenCall, frame: AnyFrame, lets_the_next_begin: bool) -> None:
        if call.is_served is not False:
            call.frames.put_nowait(frame)
        if lets_the_next_begin:
            call.lets_the_next_begin.set()

    def _drop_if_over(self, id_: str, call: OpenCall, is_over: bool) -> None:
        if is_over and call.is_served is False and call.started_in_pipecat.is_set():
            self.drop(id_)

    def begin(self, ids: Sequence[str], group_id: str | None, *, one_by_one: bool) -> None:
        """Start these calls of one answer. Drops other calls that were announced and not started: they belong to
        interrupted answers."""
        self._calls = {id_: call for id_, call in self._calls.items() if call.group or id_ in ids}
        for id_ in ids:
            call = self._calls.setdefault(id_, OpenCall())
            call.group, call.group_id = tuple(ids), group_id
            call.is_sequential |= one_by_one

    def drop(self, id_: str) -> None:
        """Remove a call that has ended in the pipeline and on the log."""
        if (call := self._calls.pop(id_, None)) is not None:
            call.started_in_pipecat.set()
            call.lets_the_next_begin.set()

    def others_open(self, id_: str) -> list[OpenCall]:
        """Returns the other calls of the same answer whose results Pipecat does not have."""
        others = (self.get(other) for other in self._calls[id_].group if other != id_)
        return [one for one in others if one is not None and not one.is_answered]

    async def until_turn_of(self, id_: str) -> None:
        """Wait until no earlier sequential call blocks this one."""
        call = self._calls[id_]
        if not call.is_sequential:
            return
        for other in tuple(self._calls.values()):
            if other is call:
                return
            if other.is_sequential and other.group:
                await other.lets_the_next_begin.wait()

    async def outcome_of(self, start: UUID, within: float) -> StoredFrame | None:
        """Returns the stored start of a call that the application published; None on timeout."""
        waits: asyncio.Future[StoredFrame] = asyncio.get_running_loop().create_future()
        self._starts[start] = waits
        try:
            async with asyncio.timeout(within):
                return await waits
        except TimeoutError:
            return None
        finally:
            del self._starts[start]

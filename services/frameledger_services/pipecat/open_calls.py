"""What the log says of the calls that our workers announced, until each is over: who runs it, and whether it began.

A call is kept from its announcement to its end, so a long conversation keeps no more than what is open.
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
    """Where on the log; None of one that was not heard of."""

    is_sequential: bool = False
    """It is made once those before it have ended, or wait for a person."""

    is_served: bool | None = None
    """A service runs it, and tells of it; False: the application does. None as long as nobody knows."""

    has_begun: bool = False
    """Its start is on the log."""

    is_answered: bool = False
    """Pipecat has its result, or knows that it is cancelled."""

    has_started: asyncio.Event = field(default_factory=asyncio.Event)
    """Pipecat knows that it runs, or that it will not."""

    lets_the_next_begin: asyncio.Event = field(default_factory=asyncio.Event)
    """On the log it ended, or waits for a person."""

    frames: asyncio.Queue[AnyFrame] = field(default_factory=asyncio.Queue)
    """What the log says of it, unless the application runs it, and says so itself."""

    group: tuple[str, ...] = ()
    """The calls of its answer, once they are made."""

    group_id: str | None = None


class OpenCalls:
    """The calls that are open, in the order in which they were announced."""

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
        """Note what a stored frame says about calls. `frame` is its payload, decoded."""
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
                    call.has_begun = True
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
                    # A call that runs is cancelled by whoever runs it, who says so.
                    if not call.has_begun:
                        self._note(call, interruption, True)

    def _note(self, call: OpenCall, frame: AnyFrame, lets_the_next_begin: bool) -> None:
        if call.is_served is not False:
            call.frames.put_nowait(frame)
        if lets_the_next_begin:
            call.lets_the_next_begin.set()

    def _drop_if_over(self, id_: str, call: OpenCall, is_over: bool) -> None:
        if is_over and call.is_served is False and call.has_started.is_set():
            self.drop(id_)

    def begin(self, ids: Sequence[str], group_id: str | None, *, one_by_one: bool) -> None:
        """These calls of one answer are made. Others that were announced and not made belong to answers that broke
        off."""
        self._calls = {id_: call for id_, call in self._calls.items() if call.group or id_ in ids}
        for id_ in ids:
            call = self._calls.setdefault(id_, OpenCall())
            call.group, call.group_id = tuple(ids), group_id
            call.is_sequential |= one_by_one

    def drop(self, id_: str) -> None:
        """This call is over, here and on the log."""
        if (call := self._calls.pop(id_, None)) is not None:
            call.has_started.set()
            call.lets_the_next_begin.set()

    def others_open(self, id_: str) -> list[OpenCall]:
        """The other calls of the same answer that Pipecat has no answer to."""
        found = (self.get(other) for other in self._calls[id_].group if other != id_)
        return [one for one in found if one is not None and not one.is_answered]

    async def turn(self, id_: str) -> None:
        """Return once no call before this one holds it up."""
        call = self._calls[id_]
        if not call.is_sequential:
            return
        for other in tuple(self._calls.values()):
            if other is call:
                return
            if other.is_sequential and other.group:
                await other.lets_the_next_begin.wait()

    async def outcome_of(self, start: UUID, within: float) -> StoredFrame | None:
        """What became of a start that the application published; None if that is not known in time."""
        waits: asyncio.Future[StoredFrame] = asyncio.get_running_loop().create_future()
        self._starts[start] = waits
        try:
            async with asyncio.timeout(within):
                return await waits
        except TimeoutError:
            return None
        finally:
            del self._starts[start]

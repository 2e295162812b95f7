"""Tracks which runs have a connected client, and interrupts a run whose client disconnects before its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, get_args
from uuid import uuid5

from frameledger.errors import FrameledgerError
from frameledger.frames import InterruptionFrame
from frameledger_services import logs
from frameledger_services.gateway.ag_ui.request_frames import FRAME_IDS
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.shared_marks import Mark, SharedMarks
from frameledger_services.store import client_requests, conversation_state

Kind = Literal["followed", "left"]
"""Either a client follows the run, or its client has left and may come back."""

KINDS: tuple[Kind, ...] = get_args(Kind)

_log = logs.get_logger("gateway")


@dataclass(eq=False, slots=True)
class _Absent:
    """A client that has left a run, until its run is interrupted or a client follows it again."""

    run_id: str
    source: str
    waiting: asyncio.Task[None] | None = None
    """The task that waits for it, and then interrupts the run."""

    is_over: bool = False
    """Whether the wait has ended."""


class Presence:
    """The clients of this process, by conversation. Marks tell other gateways about them."""

    def __init__(self, dependencies: Dependencies, marks: SharedMarks) -> None:
        self._dependencies = dependencies
        self._marks = marks
        self._streams: Counter[str] = Counter()
        self._absent: dict[str, _Absent] = {}

    def followed(self, thread_id: str, run_id: str) -> None:
        """Called when a client begins to follow this run of a conversation."""
        self._streams[thread_id] += 1
        self._marks.add("ag_ui", "followed", thread_id, run_id)
        self._stop_waiting(thread_id)

    def ended(self, thread_id: str, run_id: str, source: str | None, has_left: bool) -> None:
        """Called when a client stops following. If it `has_left` before the end of the run, and no other client of this
        process follows the conversation, the run is interrupted after a while. It is not if `source` is None: the
        client's token does not permit that, or another program started the run."""
        self._marks.remove("ag_ui", "followed", thread_id, run_id)
        self._streams[thread_id] -= 1
        if self._streams[thread_id] > 0:
            return
        del self._streams[thread_id]
        if has_left and source is not None:
            absent = self._absent[thread_id] = _Absent(run_id, source)
            absent.waiting = asyncio.create_task(self._wait(thread_id, absent))
            self._marks.add("ag_ui", "left", thread_id, run_id)

    async def requests_run(self, thread_id: str, run_id: str) -> None:
        """Called when a client requests a run. Another run that a client of this process has left is interrupted at
        once instead of after a while. If the interruption cannot be published, the next request or the end of the wait
        interrupts that run."""
        absent = self._absent.get(thread_id)
        if absent is None or absent.run_id == run_id:
            return
        await self._interrupt_absent(thread_id, absent)
        # The wait may have ended in the meantime, and a client may have left another run.
        if self._absent.get(thread_id) is absent:
            self._stop_waiting(thread_id)

    async def waits_for_run(self, thread_id: str, run_id: str, source: str) -> None:
        """Called while a client's request waits because another run is in progress. That run is interrupted if its
        client has left, even if it was a client of another gateway, or left only now."""
        await self.requests_run(thread_id, run_id)
        last_run = await self._dependencies.database.read(client_requests.last_asked_run, thread_id)
        if last_run is None or last_run.run_id == run_id:
            return
        await self._interrupt(thread_id, last_run.run_id, source, lambda kinds: kinds == {"left"})

    @contextmanager
    def held(self, thread_id: str, run_id: str) -> Iterator[None]:
        """Keeps this run from being interrupted during the block, in which a client reconnects to it. If no client
        follows the run at the end of the block, its client counts as having left again."""
        absent = self._absent.get(thread_id)
        if absent is None or absent.run_id != run_id:
            # Another gateway may be the one that waits for the client.
            self._marks.add("ag_ui", "followed", thread_id, run_id)
            try:
                yield
            finally:
                self._marks.remove("ag_ui", "followed", thread_id, run_id)
            return
        self.followed(thread_id, run_id)
        try:
            yield
        finally:
            self.ended(thread_id, run_id, absent.source, has_left=True)

    async def _wait(self, thread_id: str, absent: _Absent) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._dependencies.settings.gateway_ag_ui_reconnect_secs):
                # A process that stops interrupts no run: the clients reconnect to another process.
                await self._dependencies.stopping.wait()
                return
        absent.is_over = True
        # If a client has left several gateways, the last one interrupts: each removes its own mark first.
        self._marks.remove("ag_ui", "left", thread_id, absent.run_id)
        try:
            await self._interrupt_absent(thread_id, absent)
        except FrameledgerError as error:
            _log.warning("gateway.not_interrupted", context_id=thread_id, reason=str(error))
        finally:
            if self._absent.get(thread_id) is absent:
                del self._absent[thread_id]

    def _stop_waiting(self, thread_id: str) -> None:
        """Stop waiting for the client of a run."""
        if (absent := self._absent.pop(thread_id, None)) is None:
            return
        if not absent.is_over:
            self._marks.remove("ag_ui", "left", thread_id, absent.run_id)
            if absent.waiting is not None:
                absent.waiting.cancel()

    async def _kinds(self, thread_id: str, run_id: str) -> set[Kind]:
        """Returns the marks of a run, set by any gateway. Raises `DatabaseError`."""
        marks: dict[Mark, Kind] = {("ag_ui", kind, thread_id, run_id): kind for kind in KINDS}
        return {marks[one] for one in await self._marks.found(marks)}

    async def _interrupt_absent(self, thread_id: str, absent: _Absent) -> None:
        """Interrupt the run that a client has left, unless the client comes back during the checks."""

        def is_left(kinds: set[Kind]) -> bool:
            others = kinds if absent.is_over else kinds - {"left"}
            return not others and self._absent.get(thread_id) is absent

        await self._interrupt(thread_id, absent.run_id, absent.source, is_left)

    async def _interrupt(
        self, thread_id: str, run_id: str, source: str, is_left: Callable[[set[Kind]], bool]
    ) -> None:
        """Interrupt a run if it is still in progress and `is_left`, by its marks. Repeated interruptions of one run
        count once."""
        goes_on, _ = await self._dependencies.database.read(conversation_state.goes_on, thread_id)
        last_run = await self._dependencies.database.read(client_requests.last_asked_run, thread_id)
        if not goes_on or last_run is None or last_run.run_id != run_id:
            return
        # Last: the client may come back to another gateway while the rest is read.
        if is_left(await self._kinds(thread_id, run_id)):
            await self._dependencies.client.publish(
                thread_id,
                InterruptionFrame(id=str(uuid5(FRAME_IDS, f"{thread_id}\n{run_id}\nstop"))),
                source=source,
                within=self._dependencies.settings.gateway_request_secs,
            )

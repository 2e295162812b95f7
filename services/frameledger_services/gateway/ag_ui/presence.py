"""Which runs have a client, and what becomes of a run whose client has left before its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid5

from frameledger.errors import FrameledgerError
from frameledger.frames import InterruptionFrame
from frameledger_services import logs
from frameledger_services.gateway.ag_ui.request_frames import ASKED
from frameledger_services.gateway.parts import Parts
from frameledger_services.store import client_requests, conversation_state

_log = logs.get_logger("gateway")


class Presence:
    """The clients of this process, by conversation."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._streams: Counter[str] = Counter()
        self._absent: dict[str, tuple[asyncio.Task[None], str, str]] = {}

    def came(self, thread_id: str) -> None:
        """A client follows a run of this conversation: it is not interrupted for having none."""
        self._streams[thread_id] += 1
        if (absent := self._absent.pop(thread_id, None)) is not None:
            absent[0].cancel()

    def ended(self, thread_id: str, run_id: str, source: str | None, has_left: bool) -> None:
        """A client follows no longer. If it left its run alone, the run is interrupted after a while; not with a
        `source` of None: its token may not, or the run is somebody else's."""
        self._streams[thread_id] -= 1
        if self._streams[thread_id] > 0:
            return
        del self._streams[thread_id]
        if has_left and source is not None:
            task = asyncio.create_task(self._wait(thread_id, run_id, source))
            self._absent[thread_id] = (task, run_id, source)

    async def asks(self, thread_id: str, run_id: str) -> None:
        """A client asks for a run: another one that its client has left is interrupted now."""
        absent = self._absent.get(thread_id)
        if absent is None or absent[1] == run_id:
            return
        task, left, source = self._absent.pop(thread_id)
        task.cancel()
        await self._interrupt(thread_id, left, source)

    @contextmanager
    def held(self, thread_id: str, run_id: str) -> Iterator[None]:
        """Within the block this run is not interrupted for having no client: one that was cut off comes back. If it
        does not follow the run at the end of the block, it has left again."""
        absent = self._absent.get(thread_id)
        if absent is None or absent[1] != run_id:
            yield
            return
        self.came(thread_id)
        try:
            yield
        finally:
            self.ended(thread_id, run_id, absent[2], has_left=True)

    async def _wait(self, thread_id: str, run_id: str, source: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._parts.settings.gateway_ag_ui_reconnect_secs):
                # A process that stops leaves its runs alone: their clients go on at another one.
                await self._parts.stopping.wait()
                return
        self._absent.pop(thread_id, None)
        try:
            await self._interrupt(thread_id, run_id, source)
        except FrameledgerError as error:
            _log.warning("gateway.not_interrupted", context_id=thread_id, reason=str(error))

    async def _interrupt(self, thread_id: str, run_id: str, source: str) -> None:
        """Interrupt a run, if it is still what goes on."""
        goes_on, _ = await self._parts.database.read(conversation_state.goes_on, thread_id)
        asked = await self._parts.database.read(client_requests.last_asked_run, thread_id)
        if goes_on and asked is not None and asked.run_id == run_id:
            await self._parts.client.publish(
                thread_id,
                InterruptionFrame(id=str(uuid5(ASKED, f"{thread_id}\n{run_id}\nstop"))),
                source=source,
                within=self._parts.settings.gateway_request_secs,
            )

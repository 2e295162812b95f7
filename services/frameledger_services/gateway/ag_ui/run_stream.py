"""Streams a run to a client of AG-UI as server-sent events.

The protocol has no stop request: a client that stops a run closes its connection, which looks the same as a lost
connection. So a run continues for a while after its client disconnects, and is interrupted if the client does not come
back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frameledger_services.gateway.ag_ui.following import FollowedRun
from frameledger_services.gateway.live import protocol, timed_send
from frameledger_services.gateway.live.event_stream import HEADERS, HEARTBEAT_SECONDS
from frameledger_services.gateway.live.stream_events import HEARTBEAT
from frameledger_services.gateway.media_types import EVENT_STREAM


class RunStream(Response):
    """Sends a client the events of its run."""

    media_type = EVENT_STREAM

    def __init__(self, run: FollowedRun, begin: bytes, ended: Callable[[bool], None]) -> None:
        """`begin` is sent first. `ended` is called at the end, with whether the client left before the run was over."""
        # The base's constructor is not called: it would set Content-Length.
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS)
        self._run = run
        self._begin = begin
        self._ended = ended
        self._is_gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the run is over, the client is gone, or the gateway stops."""
        watching = asyncio.create_task(self._watch(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await timed_send.send_piece(send, self._begin)
            while not self._run.is_over and not self._run.is_closed and not self._is_gone.is_set():
                await self._step(send)
            if not self._run.is_over and not self._is_gone.is_set():
                # If the body ended here, the client would take it for the complete answer.
                await timed_send.send_piece(send, self._run.stopping().written())
            await timed_send.send_end(send)
        except TimeoutError:
            protocol.abort(scope)
        finally:
            watching.cancel()
            has_left = not (self._run.is_over or self._run.is_closed)
            self._run.close()
            self._ended(has_left)

    async def _step(self, send: Send) -> None:
        """Send the next events, and heartbeats while there are none."""
        coming = asyncio.ensure_future(self._run.next(HEARTBEAT_SECONDS))
        disconnect = asyncio.ensure_future(self._is_gone.wait())
        try:
            while not coming.done() and not disconnect.done():
                await asyncio.wait(
                    (coming, disconnect), timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if not coming.done() and not disconnect.done():
                    await timed_send.send_piece(send, HEARTBEAT)
            if coming.done():
                events = b"".join(one.written() for one in coming.result())
                await timed_send.send_piece(send, events or HEARTBEAT)
        finally:
            disconnect.cancel()
            coming.cancel()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_gone.set()

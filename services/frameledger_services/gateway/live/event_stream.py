"""A response that never ends by itself: it sends events to one client at the client's pace.

It does not use sse-starlette, which has four tasks and a lock for each stream, replaces uvicorn's signal handler when
it is imported, and cannot disconnect a client that reads nothing. Here a heartbeat is sent when a wait times out, so
one task writes.
"""

from __future__ import annotations

import asyncio
import random

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frameledger_services.gateway.live import protocol, stream_events, timed_send
from frameledger_services.gateway.live.follower import Chunk, Follower
from frameledger_services.gateway.media_types import EVENT_STREAM
from frameledger_services.gateway.metrics import StreamEnd

HEARTBEAT_SECONDS = 15.0
MAX_STREAM_SECONDS = 15 * 60.0
STREAM_JITTER = 0.2
"""The duration of a stream varies randomly by this share, so that streams move to new processes one after another."""

HEADERS = {
    "Cache-Control": "no-store",
    # Otherwise nginx buffers events.
    "X-Accel-Buffering": "no",
}


class EventStream(Response):
    """Sends a client the chunks that its follower receives."""

    media_type = EVENT_STREAM

    def __init__(self, follower: Follower, first: Chunk | None, *, is_patient: bool = False) -> None:
        """`first` is the chunk that the follower has already received. With `is_patient` the stream continues after an
        erasure of the conversation."""
        # The base's constructor is not called: it would set Content-Length.
        self.status_code = 200
        self.background = None
        self.init_headers(HEADERS)
        self._follower = follower
        self._first = first
        self._is_patient = is_patient

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client disconnects, the follower is closed, the conversation is erased or the time is over."""
        why: StreamEnd = "left"
        watching = asyncio.create_task(self._close_at_disconnect(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await timed_send.send_piece(send, stream_events.begin(self._first))
            if self._first is None or not self._is_last(self._first):
                await self._go_on(send)
            if not watching.done():
                why = "ended"
            await timed_send.send_end(send)
        except TimeoutError:
            # The client reconnects and continues from its version.
            why = "slow"
            if protocol.abort(scope):
                # The server treats the response as broken until it has noticed that the client disconnected.
                await watching
        finally:
            self._follower.count_end(why)
            self._follower.close()
            watching.cancel()

    async def _go_on(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + MAX_STREAM_SECONDS * random.uniform(1 - STREAM_JITTER, 1 + STREAM_JITTER)
        while not self._follower.is_closed and (left := end - loop.time()) > 0:
            chunk = await self._follower.next(min(left, HEARTBEAT_SECONDS))
            if self._follower.is_closed:
                return
            if chunk is None:
                await timed_send.send_piece(send, stream_events.HEARTBEAT)
                continue
            await timed_send.send_piece(send, chunk.data)
            if self._is_last(chunk):
                return

    async def _close_at_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._follower.close()

    def _is_last(self, chunk: Chunk) -> bool:
        """Returns whether nothing follows the chunk, because the conversation was erased."""
        return chunk.erased_version is not None and not chunk.exists and not self._is_patient

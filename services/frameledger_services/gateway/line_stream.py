"""Streams NDJSON of any length at the client's pace; the response is complete, or visibly broken off.

An NDJSON body has no end marker. If it cannot be completed, the connection is aborted, so that every client notices
that lines are missing. The body ends in HTTP only after the last line.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frameledger_services.gateway.live import protocol, timed_send
from frameledger_services.gateway.media_types import NDJSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store.connections import DatabaseError


class LineStream(Response):
    """Sends pieces of whole lines, each when the client has read the previous one."""

    media_type = NDJSON

    def __init__(self, pieces: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        """If `pieces` raises `ProblemError` or `DatabaseError`, the response is broken off."""
        # The base's constructor is not called: it would set Content-Length.
        self.status_code = 200
        self.background = None
        self.init_headers(headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything, unless the client disconnects. Raises the error that broke the response off if the server
        cannot abort the connection."""
        watching = asyncio.create_task(_until_disconnected(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            async for piece in self._pieces:
                if watching.done():
                    return
                await timed_send.send_piece(send, piece)
            await timed_send.send_end(send)
        except (ProblemError, DatabaseError, TimeoutError):
            if not protocol.abort(scope):
                raise
            # Until the server notices that the client is gone, it reports an unfinished response as a failure.
            await watching
        finally:
            watching.cancel()
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

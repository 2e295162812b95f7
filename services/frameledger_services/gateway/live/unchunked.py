"""Responses to HTTP/1.0 clients, which do not know chunked bodies: a body of unknown length ends with its connection.

uvicorn sends chunks to all clients, and these take the chunk lengths for parts of the body (RFC 9112, 6.1).
"""

from __future__ import annotations

from typing import Any

from starlette.types import Message, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class Unchunked:
    """ASGI's `send` of one request."""

    def __init__(self, cycle: RequestResponseCycle, send: Send) -> None:
        self._cycle = cycle
        self._send = send
        self._has_length = False

    async def __call__(self, message: Message) -> None:
        """ASGI."""
        cycle: Any = self._cycle
        if message["type"] == "http.response.start":
            self._has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
            if not self._has_length:
                cycle.chunked_encoding = False
        elif not self._has_length:
            # uvicorn expects that each piece has exactly this length.
            cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)

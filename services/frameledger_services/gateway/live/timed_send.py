"""Sends the body of a long response, with a timeout for a client that reads nothing of it."""

from __future__ import annotations

import asyncio

from starlette.types import Send

SEND_SECONDS = 20.0


async def send_piece(send: Send, data: bytes) -> None:
    """Send data. Returns when there is room for more. Raises TimeoutError for a client that reads nothing."""
    await _send(send, data, more_body=True)


async def send_end(send: Send) -> None:
    """End the body. Raises TimeoutError for a client that reads nothing: the end also waits for buffer space."""
    await _send(send, b"", more_body=False)


async def _send(send: Send, data: bytes, *, more_body: bool) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": data, "more_body": more_body})

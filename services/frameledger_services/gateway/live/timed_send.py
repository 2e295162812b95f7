"""Sends the body of a long response: a client that takes nothing of it for a while is not waited for."""

from __future__ import annotations

import asyncio

from starlette.types import Send

SEND_SECONDS = 20.0


async def send_piece(send: Send, data: bytes) -> None:
    """Returns when there is room for more. Raises TimeoutError for a client that takes nothing."""
    await _send(send, data, more_body=True)


async def send_end(send: Send) -> None:
    """End the body. Raises TimeoutError for a client that takes nothing: the end waits too, for room after the last
    piece."""
    await _send(send, b"", more_body=False)


async def _send(send: Send, data: bytes, *, more_body: bool) -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": data, "more_body": more_body})

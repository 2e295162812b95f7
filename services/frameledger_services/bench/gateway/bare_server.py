"""Runs the yardsticks' ASGI apps: uvicorn with the gateway's protocol implementation, in the event loop of the
caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn


@asynccontextmanager
async def serving(app: Any, port: int) -> AsyncIterator[None]:
    """Serve an ASGI app at this port within the block."""
    config = uvicorn.Config(
        app, port=port, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    task = asyncio.create_task(_Server(config).serve())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class _Server(uvicorn.Server):
    """A server that leaves signals to `process`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield

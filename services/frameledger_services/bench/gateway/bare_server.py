"""How the yardsticks are served: uvicorn with the protocol that the gateway has, in our own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn


@asynccontextmanager
async def serving(app: Any, port: int) -> AsyncIterator[None]:
    """An ASGI app is served at this port for as long as the block lasts."""
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
    """A server that leaves the signals to `process`."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

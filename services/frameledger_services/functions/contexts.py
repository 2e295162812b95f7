"""Contexts for handlers that look at theirs: read when first asked for, from the event loop or from a thread."""

from __future__ import annotations

import asyncio
import threading

from frameledger.context import LLMContext
from frameledger_services.settings import Settings
from frameledger_services.store import contexts
from frameledger_services.store.connections import READ_SECONDS, Connections

NAME = "frameledger-functions-contexts"


class Contexts:
    """Reads contexts in a thread of its own, which the first read starts: `FunctionCallParams.context` is an attribute,
    and an attribute cannot be awaited."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: Connections | None = None

    def load(self, context_id: str, version: int) -> LLMContext:
        """The context at that version. Blocks the calling thread. Raises `DatabaseError` and LookupError."""
        loop, connections = self._started()
        read = connections.read(contexts.context, context_id, version)
        return asyncio.run_coroutine_threadsafe(read, loop).result(2 * READ_SECONDS).context

    def close(self) -> None:
        """End the thread. Nothing is read any more. Safe to call twice."""
        with self._starting:
            loop, self._loop = self._loop, None
            connections, self._connections = self._connections, None
        if loop is not None and connections is not None:
            asyncio.run_coroutine_threadsafe(connections.close(), loop).result(READ_SECONDS)
            loop.call_soon_threadsafe(loop.stop)

    def _started(self) -> tuple[asyncio.AbstractEventLoop, Connections]:
        with self._starting:
            if self._loop is None or self._connections is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=_live, args=(loop,), name=NAME, daemon=True).start()
                self._loop = loop
                self._connections = asyncio.run_coroutine_threadsafe(
                    _connections(self._settings), loop
                ).result(READ_SECONDS)
            return self._loop, self._connections


def _live(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _connections(settings: Settings) -> Connections:
    return Connections(settings, NAME)

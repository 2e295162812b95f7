"""`SyncClient`: the client for scripts and notebooks, without `await`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Self, TypeVar

from frameledger.context import LLMContext
from frameledger.frames import AnyFrame
from frameledger.record import Place
from frameledger_services.client.client import SOURCE, WITHIN, Client
from frameledger_services.client.reading import StoredContext, StoredFrame
from frameledger_services.settings import Settings

_T = TypeVar("_T")


class SyncClient:
    """A `Client` on an event loop in a thread of its own: the same names, promises and errors.

    A context manager, or closed with `close`. Threads may share one. It also works where a loop runs already, as in
    a notebook.
    """

    def __init__(self, settings: Settings, *, source: str = SOURCE) -> None:
        self._settings = settings
        self._source = source
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        started: threading.Event = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="frameledger-client", daemon=True
        )
        self._thread.start()
        started.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; what was published is sent to its end. Closing twice does nothing."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()
            self._loop.close()

    def publish(
        self,
        context_id: str,
        *frames: AnyFrame,
        source: str | None = None,
        traceparent: str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[Place, ...]:
        """See `Client.publish`."""
        return self._do(
            self._client.publish(
                context_id, *frames, source=source, traceparent=traceparent, wait=wait, within=within
            )
        )

    def context(self, context_id: str, version: int | None = None) -> StoredContext:
        """See `Client.context`."""
        return self._do(self._client.context(context_id, version))

    def run_inference(
        self,
        context: str | LLMContext,
        max_tokens: int | None = None,
        system_instruction: str | None = None,
        *,
        version: int | None = None,
    ) -> str | None:
        """See `Client.run_inference`."""
        return self._do(self._client.run_inference(context, max_tokens, system_instruction, version=version))

    def frames(self, context_id: str, after_version: int = 0) -> Generator[StoredFrame, None, None]:
        """See `Client.frames`."""
        return self._iterate(self._client.frames(context_id, after_version))

    def follow(self, context_id: str, after_version: int = 0) -> Generator[StoredFrame, None, None]:
        """See `Client.follow`; blocks until there is a next frame, and ends with Ctrl-C or a `break`."""
        return self._iterate(self._client.follow(context_id, after_version))

    def newest_version(self, context_id: str) -> int:
        """See `Client.newest_version`."""
        return self._do(self._client.newest_version(context_id))

    def _run(self, started: threading.Event) -> None:
        self._loop.run_until_complete(self._live(started))

    async def _live(self, started: threading.Event) -> None:
        self._client = Client(self._settings, source=self._source)
        async with self._client:
            started.set()
            await self._closing.wait()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("This client is closed.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C reaches this thread and not the loop's.
            future.cancel()
            raise

    def _iterate(self, frames: AsyncGenerator[StoredFrame, None]) -> Generator[StoredFrame, None, None]:
        try:
            while (frame := self._do(_next(frames))) is not None:
                yield frame
        finally:
            if not self._loop.is_closed():
                self._do(_end(frames))


async def _next(frames: AsyncGenerator[StoredFrame, None]) -> StoredFrame | None:
    return await anext(frames, None)


async def _end(frames: AsyncGenerator[StoredFrame, None]) -> None:
    await frames.aclose()

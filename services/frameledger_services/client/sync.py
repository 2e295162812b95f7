"""`SyncClient`: the client for scripts and notebooks, without `await`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator, Sequence
from concurrent import futures
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

from frameledger.context import LLMContext
from frameledger.tools import Tools
from frameledger_services.client.client import SOURCE, Client
from frameledger_services.client.conversations import WITHIN, Conversations
from frameledger_services.client.erasing import Receipt
from frameledger_services.client.forking import Fork
from frameledger_services.client.frame_inputs import FrameInput
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.reading import StoredContext, StoredFrame
from frameledger_services.settings import Settings

_T = TypeVar("_T")
_C = TypeVar("_C", bound=Conversations)

END_SECONDS = 20.0
"""Maximum seconds for which closing a client still sends what is being published."""


class Threaded(Generic[_C]):
    """An async client on an event loop in a thread of its own. It belongs to the process that created it: after a fork,
    every call in the child process raises RuntimeError."""

    def __init__(self, client: _C) -> None:
        self._client = client
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._lock = threading.Lock()
        self._waiting: set[futures.Future[Any]] = set()
        self._ended = RuntimeError("This client is closed.")
        """Raised by every call once the thread has ended. `_cause` is the reason, if the client was not closed."""
        self._cause: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="frameledger-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """See `Client.close`. Calls of other threads that still wait raise RuntimeError. After a fork only the process
        that created the client can close it."""
        if os.getpid() != self._process:
            return
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def until_stored(
        self, context_id: str, published: Sequence[PublishedFrame], *, within: float = WITHIN
    ) -> tuple[PublishedFrame, ...]:
        """See `Client.until_stored`."""
        return self._do(self._client.until_stored(context_id, published, within=within))

    def set_tools(
        self, context_id: str, tools: Tools | None, *, wait: bool = False, within: float = WITHIN
    ) -> tuple[PublishedFrame, ...]:
        """See `Client.set_tools`."""
        return self._do(self._client.set_tools(context_id, tools, wait=wait, within=within))

    def context(self, context_id: str, version: int | None = None) -> StoredContext:
        """See `Client.context`."""
        return self._do(self._client.context(context_id, version))

    def restore(self, context_id: str) -> StoredContext:
        """See `Client.restore`."""
        return self._do(self._client.restore(context_id))

    def frames(self, context_id: str, after_version: int = 0) -> Generator[StoredFrame, None, None]:
        """See `Client.frames`."""
        return self._iterate(self._client.frames(context_id, after_version))

    def follow(self, context_id: str, after_version: int = 0) -> Generator[StoredFrame, None, None]:
        """See `Client.follow`; blocks until there is a next frame, and ends with Ctrl-C or a `break`."""
        return self._iterate(self._client.follow(context_id, after_version))

    def newest_version(self, context_id: str) -> int:
        """See `Client.newest_version`."""
        return self._do(self._client.newest_version(context_id))

    def _run(self) -> None:
        """Run the event loop in the thread. However it ends, no call is left waiting."""
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        except BaseException as error:
            self._ended = RuntimeError(
                f"The thread of this client has ended: {error!r}. Create another client."
            )
            self._cause = error
        finally:
            self._loop.close()
            with self._lock:
                for future in self._waiting:
                    if not future.done():
                        future.set_exception(RuntimeError(*self._ended.args))

    async def _live(self) -> None:
        async with self._client:
            await self._closing.wait()

    def _do(self, work: Coroutine[Any, Any, _T]) -> _T:
        if os.getpid() != self._process:
            # The loop runs only in the other process, and a thread of that process may have held the lock.
            work.close()
            raise RuntimeError(
                "This client was created before a fork, and its thread runs in the other process. Create one in each."
            )
        try:
            with self._lock:
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
                self._waiting.add(future)
        except RuntimeError:
            # The loop is closed.
            work.close()
            raise self._end_reason() from self._cause
        try:
            return future.result()
        except futures.CancelledError:
            # The thread cancels what is left when it ends.
            raise self._end_reason() from self._cause
        except BaseException:
            # Ctrl-C reaches this thread and not the loop's.
            future.cancel()
            raise
        finally:
            with self._lock:
                self._waiting.discard(future)
            if self._loop.is_closed():
                # It arrived too late to be started, so nothing else closes it.
                work.close()

    def _end_reason(self) -> RuntimeError:
        """Returns the reason why the thread has ended, as a new error for each caller."""
        self._thread.join(END_SECONDS)
        return RuntimeError(*self._ended.args)

    def _iterate(self, frames: AsyncGenerator[StoredFrame, None]) -> Generator[StoredFrame, None, None]:
        try:
            while (frame := self._do(_next(frames))) is not None:
                yield frame
        finally:
            self._leave(frames)

    def _leave(self, frames: AsyncGenerator[StoredFrame, None]) -> None:
        """End an iteration, without waiting for it. Python ends an abandoned iteration wherever it collects garbage: in
        any thread, including the loop's own and one that holds our lock."""
        if os.getpid() != self._process:
            return
        end = _end(frames)
        try:
            asyncio.run_coroutine_threadsafe(end, self._loop)
        except RuntimeError:
            # The loop is closed, and has ended it.
            end.close()


class SyncClient(Threaded[Client]):
    """A `Client` on an event loop in a thread of its own: the same methods, promises and errors.

    A context manager; or close it with `close`. Threads may share one; processes may not, and after a fork its calls
    raise RuntimeError in the child process. It also works where an event loop is already running, as in a notebook.
    """

    def __init__(self, settings: Settings | None = None, *, source: str = SOURCE) -> None:
        """See `Client`."""
        super().__init__(Client(settings, source=source))

    def publish(
        self,
        context_id: str,
        *frames: FrameInput,
        source: str | None = None,
        traceparent: str | None = None,
        expected_version: int | None = None,
        causation_id: UUID | str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[PublishedFrame, ...]:
        """See `Client.publish`."""
        return self._do(
            self._client.publish(
                context_id,
                *frames,
                source=source,
                traceparent=traceparent,
                expected_version=expected_version,
                causation_id=causation_id,
                wait=wait,
                within=within,
            )
        )

    def fork(
        self,
        context_id: str,
        new_context_id: str,
        *,
        version: int | None = None,
        run: bool = False,
        within: float = WITHIN,
    ) -> Fork:
        """See `Client.fork`."""
        return self._do(
            self._client.fork(context_id, new_context_id, version=version, run=run, within=within)
        )

    def erase(
        self, context_id: str, *, why: str, requested_by: str | None = None, within: float = WITHIN
    ) -> Receipt:
        """See `Client.erase`."""
        return self._do(self._client.erase(context_id, why=why, requested_by=requested_by, within=within))

    def receipt(self, context_id: str, frame_id: str) -> Receipt | None:
        """See `Client.receipt`."""
        return self._do(self._client.receipt(context_id, frame_id))

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


async def _next(frames: AsyncGenerator[StoredFrame, None]) -> StoredFrame | None:
    return await anext(frames, None)


async def _end(frames: AsyncGenerator[StoredFrame, None]) -> None:
    await frames.aclose()

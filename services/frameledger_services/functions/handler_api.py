"""The objects that a handler can use besides its reports: the service, a model, and the context of its call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from typing import Any

from frameledger.context import LLMContext
from frameledger.frames import AnyFrame
from frameledger_services.functions.params import FunctionServiceLike
from frameledger_services.functions.reports import REPORT_SECONDS
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings
from frameledger_services.store import contexts
from frameledger_services.store.connections import READ_SECONDS, Connections

CONTEXTS_NAME = "frameledger-functions-contexts"


class PipelineHandle:
    """The running service, as `FunctionCallParams.pipeline_worker` of one call."""

    def __init__(
        self,
        service: FunctionServiceLike,
        context_id: str,
        loop: asyncio.AbstractEventLoop,
        causation_id: str,
    ) -> None:
        """`causation_id` is the in-progress frame of the call."""
        self.service = service
        self.context_id = context_id
        self._causation_id = causation_id
        self._loop = loop

    def push_frame(self, frame: AnyFrame, direction: object = None) -> Awaitable[None]:
        """Publish a frame to this conversation, caused by the call's start, while the worker holds its lease. Await it;
        in a plain function it blocks."""
        pushed: Awaitable[None] = from_anywhere(
            self._loop,
            self.service.push_frame(self.context_id, frame, direction, causation_id=self._causation_id),
        )
        return pushed


class InferenceHandle:
    """A model for handlers: offers `run_inference` and nothing else of the model service."""

    def __init__(self, model: LLMService[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._model = model
        self._loop = loop

    def run_inference(
        self, context: LLMContext, max_tokens: int | None = None, system_instruction: str | None = None
    ) -> Awaitable[str | None]:
        """Same as `LLMService.run_inference`. Await it; in a plain function it blocks and returns the text itself."""
        answer: Awaitable[str | None] = from_anywhere(
            self._loop, self._model.run_inference(context, max_tokens, system_instruction)
        )
        return answer


class ContextLoader:
    """Reads contexts in a thread of its own, which starts with the first read: `FunctionCallParams.context` is an
    attribute, and an attribute cannot be awaited."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: Connections | None = None

    def load(self, context_id: str, version: int) -> LLMContext:
        """Returns the context at that version. Blocks the calling thread. Raises `DatabaseError` and LookupError."""
        loop, connections = self._started()
        read = connections.read(contexts.context, context_id, version)
        return asyncio.run_coroutine_threadsafe(read, loop).result(2 * READ_SECONDS).context

    def close(self) -> None:
        """End the thread. Safe to call twice."""
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
                threading.Thread(target=_run_loop, args=(loop,), name=CONTEXTS_NAME, daemon=True).start()
                self._loop = loop
                self._connections = asyncio.run_coroutine_threadsafe(
                    _connections(self._settings), loop
                ).result(READ_SECONDS)
            return self._loop, self._connections


def from_anywhere(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in `loop`. Returns an awaitable, or, in a thread without an event loop, blocks and returns the
    result."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(REPORT_SECONDS)
    if running is loop:
        return coroutine
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _connections(settings: Settings) -> Connections:
    return Connections(settings, CONTEXTS_NAME, role="frameledger_worker")

"""`FunctionCallParams`: what a handler is given, and how it answers its call."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import FrozenInstanceError
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol
from uuid import UUID

from frameledger.context import LLMContext
from frameledger.errors import RefusedError
from frameledger.frames import AnyFrame, FunctionCallResultProperties

LoadContext = Callable[[], LLMContext]


class ResultRefusedError(RefusedError, RuntimeError):
    """What a handler reported does not count: its call has settled, is another worker's, or takes no such result.

    Remedy: End the handler, or report what the message asks for. Results in between need
    `cancel_on_interruption=False`.
    """


class FunctionCallResultCallback(Protocol):
    """Reports a result. `await` it in an async handler; in a plain function, which runs in a thread, it blocks."""

    def __call__(
        self, result: Any, *, properties: FunctionCallResultProperties | None = None
    ) -> Awaitable[None]:
        """Publish a result. Returns when it is on the log.

        None means that there is no result. With `is_final=False` the call goes on; asynchronous calls only. A result
        that is not JSON, or larger than the log takes, settles the call as failed. Raises `ResultRefusedError`.
        """
        ...


class Wait(Protocol):
    """Declares a call as waiting for a person: see `FunctionCallParams.wait`."""

    def __call__(
        self, *, for_: str, deadline: datetime | timedelta | str | None = None
    ) -> Awaitable[None]: ...


class Inference(Protocol):
    """A model for handlers: from a context to a text. Nothing of it is published."""

    def run_inference(
        self, context: LLMContext, max_tokens: int | None = None, system_instruction: str | None = None
    ) -> Awaitable[str | None]: ...


class FunctionServiceLike(Protocol):
    """The running service, for publishing to other conversations than that of the call."""

    async def push_frame(
        self,
        context_id: str,
        frame: AnyFrame,
        direction: object = None,
        *,
        causation_id: UUID | str | None = None,
    ) -> None: ...


class PipelineWorker(Protocol):
    """The running service as the handler of one call sees it."""

    @property
    def service(self) -> FunctionServiceLike: ...

    def push_frame(self, frame: AnyFrame, direction: object = None) -> Awaitable[None]:
        """Publish a frame to the conversation of the call. `direction` is ignored."""
        ...


class FunctionCallParams:
    """One call, for its handler. Immutable.

    A test may construct one: with a context as `context`, and any async function as the callback.
    """

    function_name: str
    """The function as the model named it. A catch-all handler serves several."""

    tool_call_id: str
    """The call, as the provider named it. Not unique over time; `idempotency_key` is."""

    arguments: Mapping[str, Any]
    """The arguments, which fit the schema."""

    llm: Inference | None
    """A handle with `run_inference` only; None if the service has no model."""

    pipeline_worker: PipelineWorker | None
    """The running service, with `push_frame` for this conversation."""

    result_callback: FunctionCallResultCallback
    """Reports the result of the call, and of an asynchronous call intermediate results before."""

    app_resources: Any
    """The object that the service was given, shared by all calls of the process."""

    idempotency_key: str
    """The same for every attempt at this call, and for no other call: pass it to systems that must not act twice."""

    call_attempt: int
    """1, or more for a call that is safe to retry and whose earlier worker died."""

    _context: LLMContext | LoadContext
    _wait: Wait | None

    __slots__ = (
        "__weakref__",
        "_context",
        "_wait",
        "app_resources",
        "arguments",
        "call_attempt",
        "function_name",
        "idempotency_key",
        "llm",
        "pipeline_worker",
        "result_callback",
        "tool_call_id",
    )

    def __init__(
        self,
        function_name: str,
        tool_call_id: str,
        arguments: Mapping[str, Any],
        llm: Inference | None,
        pipeline_worker: PipelineWorker | None,
        context: LLMContext | LoadContext,
        result_callback: FunctionCallResultCallback,
        app_resources: Any = None,
        *,
        idempotency_key: str = "",
        call_attempt: int = 1,
        wait: Wait | None = None,
    ) -> None:
        """`context` may be a function that loads it. It is called at most once."""
        values = {
            "function_name": function_name,
            "tool_call_id": tool_call_id,
            "arguments": arguments,
            "llm": llm,
            "pipeline_worker": pipeline_worker,
            "_context": context,
            "result_callback": result_callback,
            "app_resources": app_resources,
            "idempotency_key": idempotency_key,
            "call_attempt": call_attempt,
            "_wait": wait,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def context(self) -> LLMContext:
        """The context at the version that announced this call. The first read blocks for a query; `await
        read_context()` does not."""
        loaded = self._context
        if not isinstance(loaded, LLMContext):
            loaded = loaded()
            object.__setattr__(self, "_context", loaded)
        return loaded

    async def read_context(self) -> LLMContext:
        """Returns `context` without blocking the event loop."""
        return await asyncio.to_thread(lambda: self.context)

    @property
    def tool_resources(self) -> Any:
        """Deprecated name of `app_resources`."""
        warnings.warn(
            "FunctionCallParams.tool_resources is deprecated, use app_resources",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.app_resources

    def wait(self, *, for_: str, deadline: datetime | timedelta | str | None = None) -> Awaitable[None]:
        """Declare the call as waiting for a person: it stays open beyond this process, and is answered by any client.

        `for_` says whom or what it waits for. After `deadline` (a time with its zone, or how long from now) the
        timekeeper cancels it; without one it waits for ever. Returns when that is on the log. Then the handler cannot
        answer the call any more and should return; if it raises, the call is settled as failed. Ask the person before
        you declare. In a plain function it blocks. Raises `ResultRefusedError`, and ValueError for a deadline without
        a zone or that is no time.
        """
        declare = self._wait
        if declare is None:
            raise ResultRefusedError(
                f"The call {self.tool_call_id} was not made by a service, and cannot wait."
            )
        return declare(for_=for_, deadline=deadline)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to {name!r}: the parameters of a call do not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete {name!r}: the parameters of a call do not change")

    def __repr__(self) -> str:
        return f"FunctionCallParams({self.function_name!r}, {self.tool_call_id!r}, {dict(self.arguments)!r})"

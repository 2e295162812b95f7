"""`FunctionCallParams`: the argument of a handler. It describes the call and reports its result."""

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
    """A handler's report was rejected: its call has settled, belongs to another worker, or accepts no such result.

    Remedy: End the handler, or report what the message asks for. Intermediate results need
    `cancel_on_interruption=False`.
    """


class FunctionCallResultCallback(Protocol):
    """Reports a result. Await it in an async handler. In a plain function, which runs in a thread, it blocks."""

    def __call__(
        self, result: Any, properties: FunctionCallResultProperties | None = None
    ) -> Awaitable[None]:
        """Publish a result. Returns once the log has acknowledged it.

        None means that there is no result. A result with `is_final=False` is intermediate and leaves the call open;
        only asynchronous functions may report one. Models, dataclasses and dates are written as pydantic does; a result
        that is not JSON, or that exceeds the size limit of the log, settles the call as failed. Raises
        `ResultRefusedError`.
        """
        ...


class Wait(Protocol):
    """Marks a call as waiting for a person: see `FunctionCallParams.wait`."""

    def __call__(
        self, *, for_: str, deadline: datetime | timedelta | str | None = None
    ) -> Awaitable[None]: ...


class Inference(Protocol):
    """A model for handlers: takes a context, returns a text, publishes nothing."""

    def run_inference(
        self, context: LLMContext, max_tokens: int | None = None, system_instruction: str | None = None
    ) -> Awaitable[str | None]: ...


class FunctionServiceLike(Protocol):
    """The running service, for publishing to conversations other than the call's."""

    async def push_frame(
        self,
        context_id: str,
        frame: AnyFrame,
        direction: object = None,
        *,
        causation_id: UUID | str | None = None,
    ) -> None: ...


class PipelineWorker(Protocol):
    """The running service, as seen by the handler of one call."""

    @property
    def service(self) -> FunctionServiceLike: ...

    def push_frame(self, frame: AnyFrame, direction: object = None) -> Awaitable[None]:
        """Publish a frame to the conversation of the call. `direction` is ignored."""
        ...


class FunctionCallParams:
    """One function call, passed to its handler. Immutable.

    Tests may construct one, with an `LLMContext` as `context` and any async function as the callback.
    """

    context_id: str
    """The conversation of the call. Use it to decide whose data the handler may access, instead of an argument that the
    model chose."""

    function_name: str
    """The name of the function. A catch-all handler serves several functions."""

    tool_call_id: str
    """The provider's id of the call. It may be reused later; `idempotency_key` is unique."""

    arguments: Mapping[str, Any]
    """The arguments. They are valid for the schema."""

    llm: Inference | None
    """A handle with `run_inference`; None if the service has no model."""

    pipeline_worker: PipelineWorker | None
    """The running service, with `push_frame` for this conversation."""

    result_callback: FunctionCallResultCallback
    """Reports the result of the call. An asynchronous function may report intermediate results first."""

    app_resources: Any
    """The object that was passed to the service. All calls of the process share it."""

    idempotency_key: str
    """A key that all attempts of this call share, and no other call has. Pass it to systems that must not act twice."""

    call_attempt: int
    """1 for the first attempt. Higher if a call that is safe to retry is run again because its worker died."""

    _context: LLMContext | LoadContext
    _wait: Wait | None

    __slots__ = (
        "__weakref__",
        "_context",
        "_wait",
        "app_resources",
        "arguments",
        "call_attempt",
        "context_id",
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
        context_id: str = "",
        idempotency_key: str = "",
        call_attempt: int = 1,
        wait: Wait | None = None,
    ) -> None:
        """`context` may be a function that loads the context; it is called at most once."""
        values = {
            "function_name": function_name,
            "tool_call_id": tool_call_id,
            "arguments": arguments,
            "llm": llm,
            "pipeline_worker": pipeline_worker,
            "_context": context,
            "result_callback": result_callback,
            "app_resources": app_resources,
            "context_id": context_id,
            "idempotency_key": idempotency_key,
            "call_attempt": call_attempt,
            "_wait": wait,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def context(self) -> LLMContext:
        """The context at the version that announced this call. The first access blocks while it is read from the
        database; `await read_context()` does not block."""
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
        """Mark the call as waiting for a person. It stays open when this process ends, and any client may answer it.

        `for_` names the person or the thing that the call waits for. `deadline` is a time with a time zone, or a
        duration from now, after which the timekeeper cancels the call; without it the call waits indefinitely. Notify
        the person before calling this. Returns once the log has acknowledged it. After that the handler can no longer
        answer the call and should return; if it raises, the call is settled as failed. In a plain function it blocks.
        Raises `ResultRefusedError`, and ValueError if `deadline` has no time zone or is not a time.
        """
        declare = self._wait
        if declare is None:
            raise ResultRefusedError(
                f"The call {self.tool_call_id} cannot wait: it was not made by a function service."
            )
        return declare(for_=for_, deadline=deadline)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to {name!r}: the parameters of a call do not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete {name!r}: the parameters of a call do not change")

    def __repr__(self) -> str:
        return f"FunctionCallParams({self.function_name!r}, {self.tool_call_id!r}, {dict(self.arguments)!r})"

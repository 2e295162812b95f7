"""What a handler says of its call, on its way to the call: from the event loop or from a thread."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from frameledger.frames import FunctionCallResultProperties
from frameledger.frames.calls import Waiting
from frameledger_services.functions.params import ResultRefusedError

REPORT_SECONDS = 600.0
"""How long a plain function waits until what it said is on the log. The call's own deadline is usually shorter."""


@dataclass(frozen=True, slots=True)
class Said:
    """A result. `answer` is set when it is on the log, or has the reason why it is refused."""

    result: Any
    properties: FunctionCallResultProperties | None
    answer: Future[None]

    @property
    def is_final(self) -> bool:
        return self.properties is None or self.properties.is_final


@dataclass(frozen=True, slots=True)
class Waits:
    """The call waits for a person from now on."""

    waiting: Waiting
    answer: Future[None]


Message = Said | Waits


class Reporter:
    """`FunctionCallParams.result_callback`, and its `wait`.

    Nobody but the handler, and what it gave it to, holds this object. When it is gone, nothing can report any more:
    that is how a call is settled whose handler returned without reporting. A handler that leaves it in a cycle of
    references delays that until the cycle is collected, or the call's deadline.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        put: Callable[[Message], None],
        gone: Callable[[], None],
    ) -> None:
        """`put` and `gone` are called in the event loop."""
        self._loop = loop
        self._put = put
        weakref.finalize(self, _in_loop, loop, gone).atexit = False

    def __call__(
        self, result: Any, *, properties: FunctionCallResultProperties | None = None
    ) -> Awaitable[None]:
        if properties is not None and not isinstance(properties, FunctionCallResultProperties):
            raise TypeError(f"properties are FunctionCallResultProperties, not {type(properties).__name__}")
        return self._said(lambda answer: Said(result, properties, answer))

    def wait(self, *, for_: str, deadline: datetime | timedelta | str | None = None) -> Awaitable[None]:
        waiting = Waiting(for_=for_, deadline=_written(deadline))
        return self._said(lambda answer: Waits(waiting, answer))

    def _said(self, message: Callable[[Future[None]], Message]) -> Awaitable[None]:
        answer: Future[None] = Future()
        # Taken by the call, so that a handler which is cancelled while it waits for the answer takes nothing back.
        answer.set_running_or_notify_cancel()
        try:
            self._loop.call_soon_threadsafe(self._put, message(answer))
        except RuntimeError as error:
            raise ResultRefusedError("The service has ended.") from error
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            # In a thread: there is nothing to await with.
            answer.result(REPORT_SECONDS)
            return _Done()
        if running is self._loop:
            return asyncio.wrap_future(answer, loop=running)
        return asyncio.shield(asyncio.wrap_future(answer, loop=running))


class _Done:
    """An awaitable for those who await all the same."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def from_anywhere(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """A coroutine of that loop, for a handler: an awaitable where there is a loop, and in a thread what it returns."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(REPORT_SECONDS)
    if running is loop:
        return coroutine
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _written(deadline: datetime | timedelta | str | None) -> str | None:
    """A deadline as it stands on the wire: ISO 8601 with its zone. Raises ValueError."""
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        deadline = datetime.now(UTC) + deadline
    elif isinstance(deadline, str):
        deadline = datetime.fromisoformat(deadline)
    if deadline.tzinfo is None:
        raise ValueError(f"the deadline {deadline} has no time zone")
    return deadline.isoformat()

"""The reports of a handler, and the inbox through which they reach its call, from the event loop or from a thread."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from frameledger.frames import FunctionCallResultProperties
from frameledger.frames.calls import Waiting
from frameledger_services.functions.execution import HandlerEnd
from frameledger_services.functions.params import ResultRefusedError
from frameledger_services.work import StopReason, stronger

REPORT_SECONDS = 600.0
"""How long a plain function waits for its report to be published. The call's own deadline is usually shorter."""


@dataclass(frozen=True, slots=True)
class ResultReport:
    """A result. `reply` is set when it is on the log, or to the reason why it is refused."""

    result: Any
    properties: FunctionCallResultProperties | None
    reply: Future[None]

    @property
    def is_final(self) -> bool:
        return self.properties is None or self.properties.is_final


@dataclass(frozen=True, slots=True)
class WaitReport:
    """The call waits for a person from now on. `reply` as for a result."""

    waiting: Waiting
    reply: Future[None]


HandlerReport = ResultReport | WaitReport


class ReporterGone:
    """Nothing can report any more: the last reference to the `Reporter` is gone."""


HandlerEvent = HandlerReport | HandlerEnd | ReporterGone


class Reporter:
    """`FunctionCallParams.result_callback`, and its `wait`.

    Only the handler, and code to which it passes this object, reference it. When the last reference is gone, nothing
    can report any more; this is how a call is settled whose handler returned without reporting. A handler that leaves
    it in a reference cycle delays that until the cycle is collected, or until the call's deadline.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        put: Callable[[HandlerReport], None],
        on_gone: Callable[[], None],
    ) -> None:
        """`put` and `on_gone` are called in the event loop."""
        self._loop = loop
        self._put = put
        weakref.finalize(self, _in_loop, loop, on_gone).atexit = False

    def __call__(
        self, result: Any, properties: FunctionCallResultProperties | None = None
    ) -> Awaitable[None]:
        if properties is not None and not isinstance(properties, FunctionCallResultProperties):
            raise TypeError(
                f"properties must be FunctionCallResultProperties, not {type(properties).__name__}"
            )
        return self._report(lambda reply: ResultReport(result, properties, reply))

    def wait(self, *, for_: str, deadline: datetime | timedelta | str | None = None) -> Awaitable[None]:
        waiting = Waiting(for_=for_, deadline=_written(deadline))
        return self._report(lambda reply: WaitReport(waiting, reply))

    def _report(self, report: Callable[[Future[None]], HandlerReport]) -> Awaitable[None]:
        reply: Future[None] = Future()
        # Marked as running, so that cancelling a handler that waits for the reply does not cancel the report.
        reply.set_running_or_notify_cancel()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            # At once: a handler that forgets to await this may end before anything else runs in the loop.
            self._put(report(reply))
            return asyncio.wrap_future(reply, loop=running)
        try:
            self._loop.call_soon_threadsafe(self._put, report(reply))
        except RuntimeError as error:
            raise ResultRefusedError("The function service has ended.") from error
        if running is None:
            # In a thread there is nothing that could be awaited.
            reply.result(REPORT_SECONDS)
            return _Awaitable()
        return asyncio.shield(asyncio.wrap_future(reply, loop=running))


class Inbox:
    """The events of one call, in order. For one event loop."""

    def __init__(self, refusal: Callable[[], ResultRefusedError]) -> None:
        """`refusal` returns why a report does not count, once the inbox is closed."""
        self.stop_requested: StopReason | None = None
        """Why the call has to stop, until that is acted on."""

        self._stop_was_taken = False
        self.ended: HandlerEnd | None = None
        """How the handler ended; None while it runs."""

        self.reporter_gone = False
        self._refusal = refusal
        self._events: deque[HandlerEvent] = deque()
        self._news = asyncio.Event()
        self._closed = False

    def begin(self) -> None:
        """Called before a handler begins. Events of an earlier handler that did not begin are dropped."""
        self.ended, self.reporter_gone, self._stop_was_taken = None, False, False
        self._events.clear()

    @property
    def may_begin(self) -> bool:
        """Whether nothing has asked the handler that is about to begin to stop. From any thread."""
        # In this order: a request that is taken meanwhile is recorded as taken first.
        return self.stop_requested is None and not self._stop_was_taken

    def request_stop(self, why: StopReason) -> None:
        """Request that the call stops. A weaker reason does not replace one that was not acted on yet."""
        self.stop_requested = stronger(self.stop_requested, why)
        self._news.set()

    def take_stop_request(self) -> StopReason | None:
        """Returns why the call has to stop, once per request."""
        self._stop_was_taken |= self.stop_requested is not None
        why, self.stop_requested = self.stop_requested, None
        return why

    def put(self, event: HandlerEvent) -> None:
        """Add an event. A report is refused if the inbox is closed."""
        if isinstance(event, ReporterGone):
            self.reporter_gone = True
        elif not isinstance(event, HandlerReport):
            self.ended = event
        if not self._closed:
            self._events.append(event)
        else:
            self._refuse(event)
        self._news.set()

    def wake(self) -> None:
        """End every `wait` now."""
        self._news.set()

    def take(self) -> HandlerEvent | None:
        """Returns the next event, or None."""
        return self._events.popleft() if self._events else None

    def take_last(self) -> HandlerEvent | None:
        """Returns the final result, or how the handler ended, and refuses what was reported before. None if neither
        arrived."""
        while (event := self.take()) is not None:
            if isinstance(event, ResultReport) and event.is_final:
                return event
            if not isinstance(event, HandlerReport | ReporterGone):
                return event
            self._refuse(event)
        return self.ended

    def close(self) -> None:
        """Refuse all later reports."""
        self._closed = True
        while (event := self.take()) is not None:
            self._refuse(event)

    async def wait(self, deadline: float, *, until_stop: bool = True) -> None:
        """Return when an event arrives, or at `deadline`, a time of the loop; with `until_stop` also when the call has
        to stop."""
        if self._events or (until_stop and self.stop_requested is not None):
            return
        self._news.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._news.wait()
        except TimeoutError:
            return

    def _refuse(self, event: HandlerEvent) -> None:
        if isinstance(event, HandlerReport):
            event.reply.set_exception(self._refusal())


class _Awaitable:
    """The return value of a report in a thread, for code that awaits it although it need not."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _written(deadline: datetime | timedelta | str | None) -> str | None:
    """Returns a deadline in wire form: ISO 8601 with its time zone. Raises ValueError."""
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        try:
            deadline = datetime.now(UTC) + deadline
        except OverflowError as error:
            raise ValueError(f"the deadline in {deadline} is out of range") from error
    elif isinstance(deadline, str):
        deadline = datetime.fromisoformat(deadline)
    if not isinstance(deadline, datetime):
        raise ValueError(
            f"the deadline {deadline!r} is not a time; give a datetime, a timedelta, or a time in ISO 8601"
        )
    if deadline.tzinfo is None:
        raise ValueError(f"the deadline {deadline} has no time zone; add one")
    return deadline.isoformat()

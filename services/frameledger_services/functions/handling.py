"""Running a handler: an async one as a task of the event loop, a plain one in a thread of its own.

A handler is begun once or never. A plain function cannot be stopped from outside, and an async one may refuse to be:
both may outlive their call, and nothing that they say then counts.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MOST_DETAILS = 8_000
"""Characters of a traceback that are published. Its end says most."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned this."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised. The exception itself is gone: it would hold everything that the handler saw."""

    summary: str
    details: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler ended because it was told to stop."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """It was too late to begin, and it did not."""


Ended = Returned | Raised | Stopped | NotBegun


class Handlers:
    """The handlers that go on in this process, whoever still waits for them. Of one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self,
        function: Callable[..., Any],
        by_place: tuple[Any, ...],
        by_name: Mapping[str, Any],
        *,
        is_async: bool,
        name: str,
        may_begin: Callable[[], bool],
        ended: Callable[[Ended], None],
    ) -> Execution:
        """Begin now: in the next turn of the event loop, or in a thread. `may_begin` is asked right before the
        handler's first instruction, with nothing in between, in whichever thread that is. `ended` is called once, in
        the loop."""
        execution = Execution(may_begin, ended)
        if is_async:
            # Not in a task group: one that ignores its cancellation would hold the group, and with it the process.
            task = asyncio.create_task(execution.run(function, by_place, by_name), name=name)
            execution.task = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # One that was cancelled before its first step never ran.
            task.add_done_callback(lambda _: execution.end(NotBegun()))
        else:
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            work = _InThread(loop, execution, (function, by_place, by_name))
            # A thread for each, not a pool, in which it would wait for its turn. A daemon, since nothing can make it
            # end with the process.
            threading.Thread(target=context.run, args=(work,), name=name, daemon=True).start()
        return execution

    async def stop(self, within: float) -> int:
        """Cancel the tasks that still go on, and wait; how many do not end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return 0
        _, pending = await asyncio.wait(tasks, timeout=within)
        return len(pending)


class Execution:
    """One handler, begun."""

    def __init__(self, may_begin: Callable[[], bool], ended: Callable[[Ended], None]) -> None:
        self.task: asyncio.Task[None] | None = None
        self.may_begin = may_begin
        self._ended = ended
        self._asked_to_stop = False
        self._over = False

    def stop(self) -> None:
        """Ask it to stop. An async one is cancelled; a plain one cannot be. May be called again."""
        self._asked_to_stop = True
        if self.task is not None and not self._over:
            self.task.cancel()

    async def run(
        self, function: Callable[..., Any], by_place: tuple[Any, ...], by_name: Mapping[str, Any]
    ) -> None:
        ended: Ended
        try:
            ended = Returned(await function(*by_place, **by_name)) if self.may_begin() else NotBegun()
        except asyncio.CancelledError as error:
            # One that nobody asked for came from inside, such as from a task that it awaited.
            ended = Stopped() if self._asked_to_stop else _raised(error)
        except BaseException as error:
            # SystemExit too: a handler does not end the service.
            ended = _raised(error)
        # Before its end is told, so that its end is also the end of what it held.
        del function, by_place, by_name
        self.end(ended)

    def end(self, ended: Ended) -> None:
        if not self._over:
            self._over = True
            self._ended(ended)


class _InThread:
    """What a thread runs. It lets go of the arguments before it tells its end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        execution: Execution,
        work: tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]],
    ) -> None:
        self._loop = loop
        self._execution = execution
        self._work: tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]] | None = work

    def __call__(self) -> None:
        ended = self._run()
        try:
            self._loop.call_soon_threadsafe(self._execution.end, ended)
        except RuntimeError:
            # The loop is closed: the process ended its work, and nobody waits for this any more.
            return

    def _run(self) -> Ended:
        assert self._work is not None
        function, by_place, by_name = self._work
        self._work = None
        try:
            if not self._execution.may_begin():
                return NotBegun()
            value = function(*by_place, **by_name)
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise TypeError("a plain function returned an awaitable; define the handler with `async def`")
            return Returned(value)
        except BaseException as error:
            return _raised(error)


def _raised(error: BaseException) -> Raised:
    details = "".join(traceback.format_exception(error)).rstrip()
    if len(details) > MOST_DETAILS:
        details = "..." + details[-MOST_DETAILS:]
    return Raised(f"{type(error).__name__}: {error}", details)

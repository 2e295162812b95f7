"""Running a handler: an async one as a task of the event loop, a plain one in a thread of its own.

If a plain function returns an awaitable, for instance because of a decorator around an async function, that is awaited
in a task of the loop.

A handler begins at most once. A plain function cannot be stopped from outside, and an async one may ignore its
cancellation: both may outlive their call, and their reports are then refused.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

MAX_DETAILS = 8_000
"""The number of published characters: the last ones of a traceback, which are the most useful, and the first ones of an
exception's own text. They have to fit into a frame."""

UNREPORTED = "RuntimeError: the handler ended in an unknown way"


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned this."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised. The exception itself is not kept: it would keep everything that the handler referenced
    alive."""

    summary: str
    details: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler ended because it was asked to stop."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The handler did not begin, because it was too late."""


HandlerEnd = Returned | Raised | Stopped | NotBegun


class HandlerExecutor:
    """Starts handlers, and keeps the running ones, even after their calls. For one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    def start(
        self,
        function: Callable[..., Any],
        by_place: tuple[Any, ...],
        by_name: Mapping[str, Any],
        *,
        is_async: bool,
        name: str,
        may_begin: Callable[[], bool],
        ended: Callable[[HandlerEnd], None],
    ) -> Execution:
        """Begin now: in the next turn of the event loop, or in a thread. `may_begin` is called right before the
        handler's first instruction, with nothing in between, in the handler's thread. `ended` is called once, in the
        loop."""
        execution = Execution(may_begin, ended)
        if is_async:
            # Not in a task group: a handler that ignores its cancellation would block the group, and the process.
            task = self._run_as_task(execution, execution.run(function, by_place, by_name), name)
            task.add_done_callback(lambda _: execution.end_unreported())
        else:
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            go_on = partial(self._run_rest, execution, name)
            work = _InThread(loop, execution, go_on, (function, by_place, by_name))
            # One thread each: in a pool it might have to wait. A daemon thread, because it cannot be stopped when the
            # process ends.
            thread = threading.Thread(target=context.run, args=(work,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The process may have no more threads: then only this call fails.
                loop.call_soon(execution.end, _raised(error))
        return execution

    def _run_rest(self, execution: Execution, name: str, awaitable: Awaitable[Any]) -> None:
        """Run the rest of a plain handler, which is the awaitable that it returned."""
        if execution.asked_to_stop or self._is_stopped:
            _abandon(execution, awaitable)
            return
        task = self._run_as_task(execution, execution.run_rest(awaitable), name)
        # Also if it is cancelled before its first step.
        task.add_done_callback(partial(_abandon, execution, awaitable))

    def _run_as_task(
        self, execution: Execution, running: Coroutine[Any, Any, None], name: str
    ) -> asyncio.Task[None]:
        task = execution.task = asyncio.create_task(running, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(execution.drop_task)
        return task

    async def stop(self, within: float) -> int:
        """Cancel the tasks that still run, and wait `within` seconds. Returns how many did not end. From now on the
        rest of a plain handler is not started."""
        self._is_stopped = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return 0
        _, pending = await asyncio.wait(tasks, timeout=within)
        return len(pending)


class Execution:
    """One started handler."""

    def __init__(self, may_begin: Callable[[], bool], ended: Callable[[HandlerEnd], None]) -> None:
        self.task: asyncio.Task[None] | None = None
        """The part that can be cancelled; None for a plain function in its thread, and once it is done."""

        self.asked_to_stop = False
        self._may_begin = may_begin
        self._ended = ended
        self._asked_to_begin = False
        self._over = False

    def drop_task(self, _: object) -> None:
        """Drop the task, which is done: its context may reference the reporter, in a variable that the handler set."""
        self.task = None

    def may_begin(self) -> bool:
        """Returns whether the handler may begin. Called right before its first instruction."""
        self._asked_to_begin = True
        # A thread may get here after it was asked to stop; a task is cancelled in that case.
        return self._may_begin() and not self.asked_to_stop

    def stop(self) -> None:
        """Ask it to stop. An async one is cancelled; a plain one cannot be. May be called again."""
        self.asked_to_stop = True
        if self.task is not None and not self._over:
            self.task.cancel()

    async def run(
        self, function: Callable[..., Any], by_place: tuple[Any, ...], by_name: Mapping[str, Any]
    ) -> None:
        ended: HandlerEnd
        try:
            ended = Returned(await function(*by_place, **by_name)) if self.may_begin() else NotBegun()
        except BaseException as error:
            # Including SystemExit: a handler does not end the service.
            ended = self._failed(error)
        # Dropped first, so that when `ended` is called nothing here references the reporter any more.
        del function, by_place, by_name
        self.end(ended)

    async def run_rest(self, awaitable: Awaitable[Any]) -> None:
        """Await what a plain handler returned."""
        ended: HandlerEnd
        try:
            ended = Returned(await awaitable)
        except BaseException as error:
            ended = self._failed(error)
        del awaitable
        self.end(ended)

    def _failed(self, error: BaseException) -> HandlerEnd:
        # Without a request to stop, a cancellation came from inside, such as from a task that the handler awaited.
        stopped = isinstance(error, asyncio.CancelledError) and self.asked_to_stop
        return Stopped() if stopped else _raised(error)

    def end(self, ended: HandlerEnd) -> None:
        if not self._over:
            self._over = True
            self._ended(ended)

    def end_unreported(self) -> None:
        """End it if its task ended without reporting how. A task that was cancelled before its first step never ran. In
        any other case the handler may have begun, and must not begin again."""
        self.end(Raised(UNREPORTED, UNREPORTED) if self._asked_to_begin else NotBegun())


class _InThread:
    """The code that a thread runs. It drops the arguments before `ended` is called."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        execution: Execution,
        go_on: Callable[[Awaitable[Any]], None],
        work: tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]],
    ) -> None:
        """`go_on` is called in the loop with what the function returned, if that is awaitable."""
        self._loop = loop
        self._execution = execution
        self._run_rest = go_on
        self._work: tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]] | None = work

    def __call__(self) -> None:
        ended = self._run()
        try:
            if isinstance(ended, _Unfinished):
                self._loop.call_soon_threadsafe(self._run_rest, ended.rest)
            else:
                self._loop.call_soon_threadsafe(self._execution.end, ended)
        except RuntimeError:
            # The loop is closed: the process is about to end, and nothing waits for this any more.
            return

    def _run(self) -> HandlerEnd | _Unfinished:
        assert self._work is not None
        function, by_place, by_name = self._work
        self._work = None
        try:
            if not self._execution.may_begin():
                return NotBegun()
            value = function(*by_place, **by_name)
            return _Unfinished(value) if inspect.isawaitable(value) else Returned(value)
        except BaseException as error:
            return _raised(error)


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """A plain function returned an awaitable, which still has to be awaited."""

    rest: Awaitable[Any]


def _abandon(execution: Execution, awaitable: Awaitable[Any], _: object = None) -> None:
    """End a handler whose rest did not run to completion. Does nothing for one whose rest did."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
    execution.end(Stopped())


def _raised(error: BaseException) -> Raised:
    """Returns the exception as text. Never raises: an exception may be any object of a handler, and its text may raise
    another error."""
    try:
        details = "".join(traceback.format_exception(error)).rstrip()
    except BaseException:
        details = type(error).__name__
    if len(details) > MAX_DETAILS:
        details = "..." + details[-MAX_DETAILS:]
    return Raised(f"{type(error).__name__}: {text_of(error)}", details)


def text_of(error: BaseException) -> str:
    """Returns the text of an exception, its first characters if it is long. Never raises."""
    try:
        return f"{error}"[:MAX_DETAILS]
    except BaseException as failure:
        return f"<its text cannot be read: {type(failure).__name__}>"

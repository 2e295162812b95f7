"""A process that runs one service until a signal. Applications that embed the client do not use this module: they own
their event loop, signals and garbage collector."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import NoReturn

from frameledger_services import logs

LEFT_SECONDS = 1.0
"""Maximum time for the service's remaining tasks to end, and then for the threads of `asyncio.to_thread`."""

_log = logs.get_logger("process")

Serve = Callable[[asyncio.Event], Awaitable[None]]
"""A service: it stops and returns after the event is set."""


def run_service(serve: Serve) -> None:
    """Run a service until SIGTERM or SIGINT, which stop it cleanly. Raises what the service raises.

    The service's remaining tasks are cancelled. If some do not end, such as a handler of an application that ignores
    its cancellation, the process ends here, because asyncio would wait for them without limit.
    """

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        try:
            await serve(stopping)
        finally:
            if left := await _left_running():
                _end_process(left)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main())


async def _left_running() -> list[str]:
    """Cancel all other tasks. Returns the names of those that have not ended in time."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    deadline = loop.time() + LEFT_SECONDS
    # Repeatedly, since a cancelled task may start another one.
    while (tasks := asyncio.all_tasks() - {this}) and (seconds := deadline - loop.time()) > 0:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=seconds)
    # Not earlier, because tasks may use threads until then. If it takes longer it is abandoned, since it would wait for
    # the threads even when it is cancelled.
    threads = asyncio.create_task(loop.shutdown_default_executor(), name="threads of asyncio.to_thread")
    await asyncio.wait([threads], timeout=LEFT_SECONDS)
    return sorted(task.get_name() for task in asyncio.all_tasks() - {this})


def _end_process(left: list[str]) -> NoReturn:
    """End this process although tasks or threads still run. Nothing of the service is lost: it has returned, so its
    work is settled or released, and its connections are closed."""
    error = sys.exception()
    try:
        _log.warning("process.did_not_end", left=left)
        if error is not None:
            traceback.print_exception(error)
        for stream in (sys.stderr, sys.stdout):
            # None if this process was started without the stream.
            if stream is not None:
                stream.flush()
    finally:
        # Even if nobody reads the streams any more.
        os._exit(0 if error is None else 1)


def cancel_on_signals() -> list[int]:
    """Cancel this task on the first SIGINT, SIGTERM or SIGHUP. Returns a list to which that signal is appended.

    Later signals are ignored: a second one would interrupt the shutdown and leave servers running.
    """
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    signals: list[int] = []

    def stop(number: int) -> None:
        if not signals:
            signals.append(number)
            this.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    return signals


def collect_garbage_rarely() -> None:
    """Collect garbage rarely, in the projector's process. Its objects are freed by reference counting at the end of a
    batch, so collections find nothing; they took a fifth of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's factory if it is installed, because it uses less CPU."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

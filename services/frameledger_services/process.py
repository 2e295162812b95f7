"""The life of a service's process: an event loop, until somebody says that it is enough."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable

Serve = Callable[[asyncio.Event], Awaitable[None]]
"""A service: it works until the event is set."""


def run_service(serve: Serve) -> None:
    """Serve until SIGTERM or Ctrl-C, which end it cleanly. Raises what the service raises."""

    async def life() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await serve(stopping)

    _rarely_collect_garbage()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(life())


def cancel_on_signals() -> list[int]:
    """From now on the first Ctrl-C, SIGTERM or SIGHUP cancels this task; the list that is returned then holds it.

    Only the first: a second one would break off the stopping and leave servers behind.
    """
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    assert this is not None
    asked: list[int] = []

    def stop(number: int) -> None:
        if not asked:
            asked.append(number)
            this.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    return asked


def _rarely_collect_garbage() -> None:
    """What was imported stays, and what a batch makes goes by itself when the batch ends: a collection in the middle
    of one finds nothing, and took a fifth of the projector's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 10, 10)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it exists: it takes less of the processor."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop

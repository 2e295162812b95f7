"""A process that runs one service until a signal. Applications that embed the client do not use this module: they own
their event loop, signals and garbage collector."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable

Serve = Callable[[asyncio.Event], Awaitable[None]]
"""A service: it stops and returns after the event is set."""


def run_service(serve: Serve) -> None:
    """Run a service until SIGTERM or SIGINT, which stop it cleanly. Raises what the service raises."""

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await serve(stopping)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main())


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

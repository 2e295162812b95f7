"""`frameledger run`: one service in this process, until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Awaitable, Callable

import typer

from frameledger_services.cli import failures
from frameledger_services.settings import Settings

commands = typer.Typer(no_args_is_help=True, help="Run one service in this process, until SIGTERM or Ctrl-C.")


@commands.command()
def projector() -> None:
    """Fold what is published into Postgres, each frame once.

    Run as many as there is work for: they share the partitions. `frameledger up` runs one.

    Example: `frameledger run projector`
    """
    from frameledger_services.projector import service

    live(service.serve)


def live(serve: Callable[[Settings, asyncio.Event], Awaitable[None]]) -> None:
    """The life of a service's process: until SIGTERM or Ctrl-C, which it ends cleanly, or a failure, which it says."""

    async def life(settings: Settings) -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await serve(settings, stopping)

    with failures.said():
        _rarely_collect_garbage()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(life(failures.settings()))


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

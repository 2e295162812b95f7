"""The measured processes: the projector and the yardsticks."""

from __future__ import annotations

import asyncio
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from frameledger_services.bench.road.servers import command, environment
from frameledger_services.settings import Settings

PROJECTOR = ("frameledger_services", "run", "projector")
WATCHED = ("frameledger_services.bench.road.watched",)
STRAIGHT_LINE = ("frameledger_services.bench.road.straight_line",)
BARE_ROAD = ("frameledger_services.bench.road.bare_road",)

STOP_SECONDS = 30.0


class BenchError(Exception):
    """A measured process failed. The message has the end of its output."""


@asynccontextmanager
async def running(
    settings: Settings, *module: str, stderr: int | None = None, also: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """Run a process with these settings and the environment variables in `also` within the block. Its standard output
    is a pipe."""
    process = await asyncio.create_subprocess_exec(
        *command("-m", *module),
        env={**environment(settings), **(also or {})},
        stdout=PIPE,
        stderr=stderr,
        limit=64 * 1024 * 1024,
        # Ctrl-C in a terminal is for the bench, which stops it.
        process_group=0,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


async def output_of(settings: Settings, *module: str, within: float) -> bytes:
    """Returns the output of a process that ends by itself. Raises `BenchError` if it fails or takes too long."""
    async with running(settings, *module) as process:
        try:
            output, _ = await asyncio.wait_for(process.communicate(), within)
        except TimeoutError:
            raise BenchError(f"{' '.join(module)} did not end within {within:.0f} s.") from None
    if process.returncode != 0:
        raise BenchError(f"{' '.join(module)} ended with exit code {process.returncode}.")
    return output


def free_port() -> int:
    """Returns a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

"""The server processes: waiting until a server listens."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import Process
from contextlib import suppress

from frameledger_services.bench.road.processes import BenchError

GATEWAY = ("frameledger_services", "run", "gateway")

WITHIN = 300.0
POLL_SECONDS = 0.25


async def until_up(server: Process, port: int) -> None:
    """Wait until the server listens. Raises `BenchError` if it ends before, and TimeoutError."""
    async with asyncio.timeout(WITHIN):
        while not await _is_up(port):
            if server.returncode is not None:
                raise BenchError(f"The server ended with exit code {server.returncode}.")
            await asyncio.sleep(POLL_SECONDS)


async def _is_up(port: int) -> bool:
    with suppress(OSError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False

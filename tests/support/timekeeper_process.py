"""A timekeeper in a process of its own, which kills itself at a point of a look if it is told to."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from contextlib import contextmanager
from typing import Any

from tests.bounds import ON_SERVERS

from frameledger_services.settings import Settings
from frameledger_services.timekeeper import service

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


@contextmanager
def timekeeper(settings: Settings, *, dies_at: str | None = None, lease_secs: float | None = None):
    """Its process for as long as the block lasts; nothing is left of it afterwards. With a short lease it judges soon
    who is dead."""
    process = _processes.Process(target=_keep_time, args=(settings, dies_at, lease_secs))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def ended(process: Any) -> int:
    """Wait for its end; its exit code, below zero for a signal."""
    process.join(ON_SERVERS)
    assert process.exitcode is not None, "the timekeeper does not end"
    return int(process.exitcode)


def stopped(process: Any) -> int:
    """Ask it to end, as `frameledger down` does; its exit code."""
    process.terminate()
    return ended(process)


def _keep_time(settings: Settings, dies_at: str | None, lease_secs: float | None) -> None:
    if lease_secs is not None:
        vars(service)["LEASE_SECONDS"] = lease_secs

    async def failpoint(point: str) -> None:
        if point == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def life() -> None:
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        await service.serve(settings, stopping, failpoint)

    asyncio.run(life())

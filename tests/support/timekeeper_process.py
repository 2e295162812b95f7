"""A timekeeper in a process of its own, which can kill itself at a point of its sweep."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from tests.support.processes import Process, preload, reaching
from tests.support.tcp_proxy import redirected

from frameledger_services.settings import Settings
from frameledger_services.timekeeper import service

preload(__name__)


def timekeeper(
    settings: Settings,
    *,
    dies_at: str | None = None,
    lease_secs: float | None = None,
    broker: tuple[int, int] | None = None,
) -> Process:
    """Returns the process. With a short lease it soon considers workers dead. Connections to the first port of `broker`
    go to the second one."""
    return Process(_run_session, settings, dies_at, lease_secs, broker)


def _run_session(
    settings: Settings,
    dies_at: str | None,
    lease_secs: float | None,
    broker: tuple[int, int] | None,
    _: Any,
) -> None:
    if lease_secs is not None:
        vars(service)["LEASE_SECONDS"] = lease_secs

    reach = reaching(dies_at, signal.SIGKILL)

    async def failpoint(point: str) -> None:
        reach(point)

    async def life() -> None:
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        await service.serve(settings, stopping, failpoint=failpoint)

    with redirected(broker):
        asyncio.run(life())

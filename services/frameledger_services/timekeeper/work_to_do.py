"""Counts, every fifteen seconds, what there is to do, on a connection of its own: a count that is slow delays no
heartbeat."""

from __future__ import annotations

import asyncio

from frameledger_services import logs, supervision, transient
from frameledger_services.settings import Settings
from frameledger_services.store import work_to_do
from frameledger_services.store.connections import Connections
from frameledger_services.timekeeper.metrics import TimekeeperMetrics

EVERY_SECONDS = 15.0

_log = logs.get_logger("timekeeper")


async def keep_counting(settings: Settings, stopping: asyncio.Event, metrics: TimekeeperMetrics) -> None:
    """Count until `stopping` is set. While the database is away the gauges stay as they were."""
    connections = Connections(settings, "frameledger timekeeper counts", most=1)
    try:
        while not stopping.is_set():
            try:
                metrics.found(await connections.read(work_to_do.count))
            except transient.DATABASE as error:
                _log.warning("timekeeper.not_counted", reason=transient.reason(error))
            await supervision.pause(stopping, EVERY_SECONDS)
    finally:
        await connections.close()

"""Counts the open work every fifteen seconds, on a connection of its own, so that a slow count delays no heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from frameledger_services import database, logs, supervision, transient
from frameledger_services.settings import Settings
from frameledger_services.store import work_to_do
from frameledger_services.timekeeper.metrics import TimekeeperMetrics

EVERY_SECONDS = 15.0

_log = logs.get_logger("timekeeper")


async def keep_counting(
    settings: Settings, stopping: asyncio.Event, metrics: TimekeeperMetrics, session: Mapping[str, str]
) -> None:
    """Count until `stopping` is set. During an outage of the database the gauges keep their values. `session` are
    settings of the connection. Raises errors that are not transient."""
    while not stopping.is_set():
        try:
            async with await database.connect(
                settings, "frameledger timekeeper counts", session, role="frameledger_worker"
            ) as connection:
                while not stopping.is_set():
                    metrics.observe_work(await work_to_do.count(connection))
                    await supervision.pause(stopping, EVERY_SECONDS)
        except transient.DATABASE as error:
            _log.warning("timekeeper.not_counted", reason=transient.reason(error))
            await supervision.pause(stopping, EVERY_SECONDS)

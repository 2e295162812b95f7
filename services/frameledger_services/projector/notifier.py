"""Sends NOTIFY with the next offsets of partitions and the changed conversations, after the commit of a batch.

What is notified is on disk: NOTIFY is a transaction, and its commit flushes all earlier commits. Listeners do not
depend on it, because they also poll. So nothing is lost if the process dies before NOTIFY; PostgreSQL's WAL writer
flushes the commits within 0.6 s (three times `wal_writer_delay`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping

from psycopg import errors

from frameledger_services import logs
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector.metrics import ProjectorMetrics, clock
from frameledger_services.store import progress_channel

INTERVAL_SECONDS = 0.002
"""There is at most one notification per interval, for all batches in it: each is a transaction that waits for the disk
and wakes every listener. At 1,000 frames per second on two cores, one per batch took a thirteenth of the CPU time from
publish to SQL, and made the median commit a tenth later. A batch that comes alone is notified at once."""

BACKLOG_INTERVAL_SECONDS = 0.01
"""The interval in a backlog, where nobody waits for a single frame."""

WARNING_INTERVAL_SECONDS = 60.0
"""At most one warning per interval says that notifications fail."""

_log = logs.get_logger("projector")


class Notifier:
    """Sends notifications in the background, so that no batch waits for them."""

    def __init__(
        self,
        connection: Connection,
        topic: str,
        failpoint: Failpoint,
        metrics: ProjectorMetrics | None = None,
    ) -> None:
        self._connection = connection
        self._metrics = metrics or ProjectorMetrics()
        self._oldest_ms: int | None = None
        self._topic = topic
        self._failpoint = failpoint
        self._offsets: dict[int, int] = {}
        self._context_ids: set[str] = set()
        self._last = self._warned_at = float("-inf")
        self._due = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def notify(
        self,
        offsets: Mapping[int, int],
        context_ids: Collection[str],
        *,
        backlog: bool = False,
        logged_ms: int | None = None,
    ) -> None:
        """Notify of the next offsets of these partitions, and of the conversations of the records before them: at once,
        or together with others within `INTERVAL_SECONDS` of the last notification, or within `BACKLOG_INTERVAL_SECONDS`
        in a backlog. `logged_ms` is the time at which the oldest of the records was logged, if there is one."""
        self._offsets |= offsets
        self._context_ids.update(context_ids)
        if logged_ms is not None:
            self._oldest_ms = logged_ms if self._oldest_ms is None else min(self._oldest_ms, logged_ms)
        self._idle.clear()
        loop = asyncio.get_running_loop()
        due = self._last + (BACKLOG_INTERVAL_SECONDS if backlog else INTERVAL_SECONDS)
        if due <= loop.time():
            self._wake.set()
        elif due < self._due:
            self._cancel_timer()
            self._due, self._timer = due, loop.call_at(due, self._wake.set)

    async def until_drained(self) -> None:
        """Send all notifications without further delay, and return when they are sent."""
        if not self._idle.is_set():
            self._wake.set()
        await self._idle.wait()

    async def run(self) -> None:
        """Run until cancelled. Raises psycopg's errors, except for a full notification queue, which is only logged."""
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._cancel_timer()
            offsets, self._offsets = self._offsets, {}
            context_ids, self._context_ids = self._context_ids, set()
            oldest_ms, self._oldest_ms = self._oldest_ms, None
            self._last = loop.time()
            await self._failpoint("before announcing")
            began = clock()
            try:
                await progress_channel.notify_progress(self._connection, self._topic, offsets, context_ids)
            except errors.ProgramLimitExceeded as error:
                self._warn_of_full_queue(error, loop.time())
            self._metrics.announce.observe(clock() - began)
            if oldest_ms is not None:
                # The log's clock may be ahead of ours.
                self._metrics.visible.observe(max(0.0, time.time() - oldest_ms / 1000))
            await self._failpoint("announced")
            if not self._offsets:
                self._idle.set()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = float("inf"), None

    def _warn_of_full_queue(self, error: errors.ProgramLimitExceeded, now: float) -> None:
        if now < self._warned_at + WARNING_INTERVAL_SECONDS:
            return
        self._warned_at = now
        _log.warning(
            "projector.announcement_failed",
            reason=error.diag.message_primary,
            detail=error.diag.message_detail,
            remedy="a session that listens is idle in a transaction: end it. Until then all listeners poll.",
        )

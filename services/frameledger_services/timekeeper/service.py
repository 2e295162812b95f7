"""The timekeeper as a service: it sweeps once a second, publishes what is due, and waits through outages.

A sweep judges a partition only if its projection has reached the offset at which its log ended after the previous
sweep. So frames in transit, including those of our own last sweep, are folded before anything is judged by their
absence. Behind an open transaction of another program nothing is folded, so a partition is not judged while such a
transaction hides its newest records. During an outage of the broker the timekeeper continues its heartbeats.

After an outage of the broker that is longer than a limit, such as that of silent runs, the run of a live worker looks
silent, although the worker publishes the rest of the answer as soon as the broker is back. The first frame on the log
wins: if it were the timekeeper's, the run would be closed, its worker told to stop, and its later frames ignored
(`run_over`). Nothing would happen twice, but half an answer would be lost although nothing failed. So rules that judge
by what is not on the log are off for a while after an outage (`TimeLimits.after_outage`). If only one partition has no
leader, the others are judged meanwhile, and it gets the same time once it is back.

A new session of the timekeeper treats the time before it as an outage. The machine may have been off or suspended, or
the database unreachable; then the leases of the workers have ended as well, and their work is silent until it is taken
over, one lease later. One race remains, with the same outcome: a worker that alone cannot reach the broker for longer
than the limit looks silent to the timekeeper.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, suppress
from uuid import uuid4

import psycopg

from frameledger_services import claims, database, failpoints, logs, supervision, transient
from frameledger_services.database_types import Connection
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.failpoints import Failpoint
from frameledger_services.settings import Settings
from frameledger_services.store import overdue, projections, schema, topics
from frameledger_services.suspend_clock import clock_through_suspend
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics
from frameledger_services.timekeeper import roots, work_to_do
from frameledger_services.timekeeper.limits import TimeLimits
from frameledger_services.timekeeper.log import SettlementLog
from frameledger_services.timekeeper.metrics import TimekeeperMetrics
from frameledger_services.timekeeper.partitions import Partitions
from frameledger_services.timekeeper.settling import Settlement
from frameledger_services.timekeeper.sweep import Sweeper, purge, sweep

SERVICE = "timekeeper"

LEASE_SECONDS = 15.0
"""Seconds of this timekeeper's lease, under which it holds the calls that it has claimed. Twice the interval of sweeps
is added."""

PURGE_SECONDS = 60.0

SESSION = {
    "statement_timeout": "10s",
    # Statements read a few rows, by their keys. The planner would choose otherwise for tables without statistics, or
    # small ones.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""Settings of our database session."""

_log = logs.get_logger("timekeeper")


async def serve(
    settings: Settings,
    stopping: asyncio.Event,
    *,
    metrics: Metrics = NO_METRICS,
    failpoint: Failpoint = failpoints.none,
) -> None:
    """Run the timekeeper until `stopping` is set. During an outage of broker or database it waits and logs why.

    Raises errors that are not transient, such as a database with another schema.
    """
    counted = TimekeeperMetrics(metrics)
    async with asyncio.TaskGroup() as group:
        group.create_task(
            supervision.keep_running(
                lambda: _run_session(settings, stopping, failpoint, counted), stopping, _log
            )
        )
        if metrics is not NO_METRICS:
            group.create_task(work_to_do.keep_counting(settings, stopping, counted, SESSION))
        if settings.timekeeper_root_every_secs:
            group.create_task(roots.keep_publishing(settings, stopping))


async def _run_session(
    settings: Settings, stopping: asyncio.Event, failpoint: Failpoint, metrics: TimekeeperMetrics
) -> None:
    """Run one session of a worker, on one connection. Returns if it is declared dead; the next session is another
    worker."""
    registration = claims.Registration(
        worker_id=f"{SERVICE}-{uuid4()}",
        service=SERVICE,
        kind="timekeeper",
        host=socket.gethostname(),
        pid=os.getpid(),
        lease_secs=LEASE_SECONDS + 2 * settings.timekeeper_every_secs,
        slots=overdue.MAX_ROWS,
    )
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            await database.connect(settings, "frameledger timekeeper", SESSION, role="frameledger_worker")
        )
        await schema.check(connection)
        # In a database that is still empty nothing is judged before a projector of our topic owns partitions; after
        # that, no projector of another topic can.
        await topics.refuse_other(connection, TopicNames(settings.topic_prefix).frames)
        await claims.register(connection, registration)
        log = await stack.enter_async_context(SettlementLog(settings, metrics))
        timekeeper = Timekeeper(settings, connection, log, registration, failpoint, metrics)
        _log.info("timekeeper.started", worker=registration.worker_id)
        await timekeeper.run(stopping)
        with suppress(psycopg.Error):
            await claims.leave(connection, registration.worker_id)


class Timekeeper:
    """One worker, which sweeps at an interval."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        log: SettlementLog,
        registration: claims.Registration,
        failpoint: Failpoint,
        metrics: TimekeeperMetrics,
    ) -> None:
        self._metrics = metrics
        self._limits = TimeLimits.of(settings)
        self._every = settings.timekeeper_every_secs
        self._connection = connection
        self._log = log
        self._registration = registration
        self._failpoint = failpoint
        self._partitions = Partitions()
        self._purged_at = float("-inf")

    async def run(self, stopping: asyncio.Event) -> None:
        """Sweep until it is stopped or declared dead."""
        loop = asyncio.get_running_loop()
        backoff, not_before = supervision.Backoff(), float("-inf")
        while not stopping.is_set():
            sent = clock_through_suspend()
            beat = await claims.heartbeat(self._connection, self._registration.worker_id, {})
            if not beat.alive:
                _log.warning("timekeeper.judged_dead", worker=self._registration.worker_id)
                return
            if loop.time() >= not_before:
                try:
                    await self._sweep(sent + self._registration.lease_secs)
                    backoff.reset()
                except transient.BROKER as error:
                    # Published frames may be on the log, but its end offsets are unknown.
                    self._partitions.note_outage()
                    pause = backoff.next()
                    _log.warning("timekeeper.retrying_broker", reason=transient.reason(error), again_in=pause)
                    not_before = loop.time() + pause
            await supervision.pause(stopping, self._every)

    async def _sweep(self, until: float) -> None:
        """Sweep, and publish what is due unless that is later than `until`, by the clock of `suspend_clock`."""
        sweeper = Sweeper(
            self._registration.worker_id,
            SERVICE,
            may_judge=await claims.may_judge(self._connection, self._registration.worker_id),
        )
        loop = asyncio.get_running_loop()
        if (now := loop.time()) - self._purged_at > PURGE_SECONDS:
            await purge(self._connection, self._limits, self._registration.worker_id)
            self._purged_at = now
        reached = await projections.next_offsets(self._connection, self._log.topic)
        now = loop.time()
        self._partitions.note_stored(reached, now)
        # Also while nothing changes: then it shows the records that projectors do not store.
        self._metrics.observe_ends(self._partitions.ends, reached)
        settlements: list[Settlement] = []
        judged = self._partitions.judged(self._limits, now)
        for limits, current in judged.items():
            settlements += await sweep(self._connection, limits, sweeper, current)
        if judged:
            await self._failpoint("after sweep")
            if clock_through_suspend() > until:
                # The machine was suspended during the sweep: the workers were too, or the log has gone on.
                self._partitions.note_outage()
                return
            await self._log.publish(settlements)
            await self._failpoint("after publish")
        answers = await self._log.ends(self._partitions.known)
        for partition in self._partitions.note_ends(answers, loop.time(), self._log.hidden):
            _log.warning("timekeeper.partition_away", partition=partition)

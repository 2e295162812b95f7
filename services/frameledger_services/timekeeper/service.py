"""The timekeeper as a service: it looks once a second, publishes what is due, and waits for what is away.

A look judges a partition only if it is projected up to where its log ended at the end of the look before. So nobody
is judged by a frame that is on its way, our own of the last look included. While the broker is away the timekeeper
still says that it lives.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, suppress
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection

from frameledger_services import claims, database, failpoints, logs, supervision, transient
from frameledger_services.failpoints import Failpoint
from frameledger_services.settings import Settings
from frameledger_services.store import overdue, projections, schema
from frameledger_services.timekeeper.limits import Limits
from frameledger_services.timekeeper.log import Log
from frameledger_services.timekeeper.sweep import Sweeper, look, tidy

SERVICE = "timekeeper"

LEASE_SECONDS = 15.0
"""Beside two looks: for so long another timekeeper leaves the calls alone that this one has claimed."""

TIDY_EVERY = 60.0

SESSION = {
    "statement_timeout": "10s",
    # What is asked for are a few rows, by their keys. The planner is not to think otherwise of tables that it has not
    # counted yet, or that are small.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""What our session on the database is set to."""

_log = logs.get_logger("timekeeper")


async def serve(settings: Settings, stopping: asyncio.Event, failpoint: Failpoint = failpoints.none) -> None:
    """Keep time until `stopping` is set. During an outage of broker or database it waits and logs why.

    Raises errors that are not transient, such as a database with another schema.
    """
    await supervision.keep_running(lambda: _keep_time(settings, stopping, failpoint), stopping, _log)


async def _keep_time(settings: Settings, stopping: asyncio.Event, failpoint: Failpoint) -> None:
    """One life of a worker, on one connection; a worker that was judged dead is followed by another one."""
    offer = claims.Registration(
        worker_id=f"{SERVICE}-{uuid4()}",
        service=SERVICE,
        kind="timekeeper",
        host=socket.gethostname(),
        pid=os.getpid(),
        lease_secs=LEASE_SECONDS + 2 * settings.timekeeper_every_secs,
        slots=overdue.MOST_ROWS,
    )
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            await database.connect(settings, "frameledger timekeeper", SESSION)
        )
        await schema.check(connection)
        await claims.register(connection, offer)
        log = await stack.enter_async_context(Log(settings))
        timekeeper = _Timekeeper(settings, connection, log, offer, failpoint)
        _log.info("timekeeper.began", worker=offer.worker_id)
        await timekeeper.run(stopping)
        with suppress(psycopg.Error):
            await claims.leave(connection, offer.worker_id)


class _Timekeeper:
    """One worker, which looks again and again."""

    def __init__(
        self,
        settings: Settings,
        connection: AsyncConnection[Any],
        log: Log,
        offer: claims.Registration,
        failpoint: Failpoint,
    ) -> None:
        self._limits = Limits.of(settings)
        self._every = settings.timekeeper_every_secs
        self._connection = connection
        self._log = log
        self._offer = offer
        self._failpoint = failpoint
        self._ends: dict[int, int] = {}
        self._tidied_at = float("-inf")

    async def run(self, stopping: asyncio.Event) -> None:
        """Look until it is stopped, or judged dead."""
        loop = asyncio.get_running_loop()
        backoff, not_before = supervision.Backoff(), float("-inf")
        while not stopping.is_set():
            beat = await claims.heartbeat(self._connection, self._offer.worker_id, {})
            if not beat.alive:
                _log.warning("timekeeper.judged_dead", worker=self._offer.worker_id)
                return
            if loop.time() >= not_before:
                try:
                    await self._look()
                    backoff.reset()
                except transient.BROKER as error:
                    # What was published may be on the log, and where that ends now is not known.
                    self._ends = {}
                    pause = backoff.next()
                    _log.warning(
                        "timekeeper.waiting_for_broker", reason=transient.reason(error), again_in=pause
                    )
                    not_before = loop.time() + pause
            await supervision.pause(stopping, self._every)

    async def _look(self) -> None:
        looker = Sweeper(
            self._offer.worker_id,
            SERVICE,
            may_judge=await claims.may_judge(self._connection, self._offer.worker_id),
        )
        now = asyncio.get_running_loop().time()
        if now - self._tidied_at > TIDY_EVERY:
            await tidy(self._connection, self._limits, self._offer.worker_id)
            self._tidied_at = now
        reached = await projections.next_offsets(self._connection, self._log.topic)
        current = [partition for partition, end in self._ends.items() if reached.get(partition, 0) >= end]
        if current:
            found = await look(self._connection, self._limits, looker, current)
            await self._failpoint("after look")
            await self._log.publish(found)
            await self._failpoint("after publish")
        self._ends = await self._log.ends(reached)

"""Claims work in one session of a worker: effects from their topic, dead workers' work, and work without a claim.

Work is claimed only while a slot is free. One claim is in progress at a time, so that no free slot is counted twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from frameledger import effects
from frameledger_services import claims, logs
from frameledger_services.claims import Claimed, WorkerDeadError
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.keyed_executor import KeyedExecutor
from frameledger_services.work.effect_consumer import EffectConsumer
from frameledger_services.work.in_flight import InFlight
from frameledger_services.work.job import Session
from frameledger_services.work.kinds import JobKind
from frameledger_services.work.metrics import WorkMetrics

TAKE_OVER_SECONDS = 1.0
"""Seconds between two sweeps for dead workers' work."""

UNCLAIMED_EVERY = 5
"""Every fifth sweep also looks for unclaimed work."""

POLL_SECONDS = 1.0
"""Seconds between two polls of a worker without a free slot, which keep its membership in the consumer group."""

WINDOW = 50
"""Minimum number of effects that one claim requests."""

E = TypeVar("E", bound=effects.Effect)
C = TypeVar("C", bound=Claimed)
T = TypeVar("T")

_log = logs.get_logger("worker")


class Claimer(Generic[E, C]):
    """Two loops that claim work. The session cancels them when it ends."""

    def __init__(
        self,
        *,
        kind: JobKind[E, C],
        session: Session,
        consumer: EffectConsumer[E],
        check: Callable[[Connection], Awaitable[None]],
        executor: KeyedExecutor,
        in_flight: InFlight[C],
        failpoint: Failpoint,
        metrics: WorkMetrics,
    ) -> None:
        """If the database reports the worker as dead, the lease of `session` is ended. `check` raises if the work in
        the database is not for this worker's topics."""
        self._kind = kind
        self._session = session
        self._worker_id = session.worker_id
        self._consumer = consumer
        self._check = check
        self._executor = executor
        self._in_flight = in_flight
        self._failpoint = failpoint
        self._metrics = metrics
        self._claiming = asyncio.Lock()

    async def from_topic(self) -> None:
        """Claim effects as they arrive, and commit their offsets once their claims are durable."""
        while True:
            await self._consumer.fetch()
            while self._consumer.pending:
                await self._wait_for_slot()
                async with self._claiming:
                    await self._claim()
                await self._failpoint("before commit")
                await self._consumer.commit()
                await self._failpoint("after commit")
            await self._consumer.commit()

    async def from_others(self) -> None:
        """Take over work that was released or is a dead worker's. Finish those of their claims whose work has ended."""
        for sweep in itertools.count():
            await asyncio.sleep(TAKE_OVER_SECONDS)
            async with self._claiming:
                # When the session began, the database may have been empty.
                await self._execute(self._check)
                if free := self._executor.free_slots:
                    self._in_flight.start(await self._execute(partial(self._take_over, limit=free)))
                    await self._failpoint("after take-over")
                if sweep % UNCLAIMED_EVERY == 0:
                    if free := self._executor.free_slots:
                        self._in_flight.start(await self._claim_unclaimed(free))
                    await self._execute(self._release_unknown)
            await self._execute(lambda connection: claims.finish_over(connection, self._worker_id))

    async def _claim(self) -> None:
        free = self._executor.free_slots
        if not free:
            # Work that was taken over meanwhile occupies the slot.
            return
        # Most may have ended or be another worker's, so more are requested than fit, but not all pending ones whenever
        # a slot becomes free.
        requested = self._consumer.pending[: max(WINDOW, 4 * free)]
        traceparents = self._consumer.traceparents_of(requested)
        await self._failpoint("before claim")
        result = await self._execute(
            lambda connection: self._kind.claim(connection, self._worker_id, requested, free, traceparents)
        )
        await self._failpoint("after claim")
        self._metrics.claimed(result.claimed)
        self._in_flight.start(result.claimed)
        self._consumer.ack(requested, result.unexamined)

    async def _wait_for_slot(self) -> None:
        while not self._executor.free_slots:
            await self._consumer.keep_membership()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._executor.wait_for_slot()

    async def _take_over(self, connection: Connection, limit: int) -> list[C]:
        claimed_work = await self._kind.take_over(connection, self._worker_id, limit)
        self._metrics.claimed(claimed_work)
        for work in claimed_work:
            _log.info(
                "run.taken_over" if self._kind.worker == "inference" else "call.taken_over",
                worker=self._worker_id,
                context_id=work.context_id,
                of=self._kind.subject(work),
            )
        return claimed_work

    async def _claim_unclaimed(self, limit: int) -> list[C]:
        """Claim unclaimed work if a broker answers. A worker without Kafka could not even publish the start, so it
        leaves the work to others."""
        unclaimed = await self._execute(
            lambda connection: self._kind.unclaimed(connection, self._worker_id, limit)
        )
        if not unclaimed or not await self._consumer.reaches_broker():
            return []
        result = await self._execute(
            lambda connection: self._kind.claim(connection, self._worker_id, unclaimed, limit, {})
        )
        self._metrics.claimed(result.claimed)
        return result.claimed

    async def _release_unknown(self, connection: Connection) -> None:
        """Release claims that the worker does not know. A claim younger than a lease is released by a later sweep: its
        answer may be in transit, or lost with its connection."""
        count = await claims.release_all_but(
            connection,
            self._worker_id,
            self._in_flight.unsettled(),
            older_than_secs=self._session.lease.seconds,
        )
        if count:
            _log.info("worker.unknown_claims_released", worker=self._worker_id, count=count)

    async def _execute(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        """Returns the result of a statement that needs a live worker. If this worker is dead, ends the lease, and so
        the session."""
        try:
            return await self._session.database.do(statement)
        except WorkerDeadError:
            self._session.lease.end()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # cancelled by the session

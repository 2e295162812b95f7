"""Claimer work, for one life of a worker: effects off their topic, the work of the dead, and what nobody claimed.

It is taken only where a lane is free. One claim is under way at a time, so that two never count the same free place.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from frameledger_services import claims, logs
from frameledger_services.claims import Claimed, WorkerDeadError
from frameledger_services.claims.values import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.keyed_executor import KeyedExecutor
from frameledger_services.work.database import Database
from frameledger_services.work.effect_consumer import EffectConsumer
from frameledger_services.work.in_flight import InFlight
from frameledger_services.work.kinds import JobKind
from frameledger_services.work.lease import Lease

TAKE_OVER_SECONDS = 1.0
"""Between two looks for work of the dead."""

LOOK_FOR_MISSED = 5
"""Every so manieth of these looks is also for open work that nobody claimed."""

LOOK_SECONDS = 1.0
"""How long a worker without a free slot waits at most before it shows its group that it lives."""

WINDOW = 50
"""Effects that one claim asks for, at least."""

E = TypeVar("E")
C = TypeVar("C", bound=Claimed)
T = TypeVar("T")

_log = logs.get_logger("worker")


class Claimer(Generic[E, C]):
    """Two ways of taking work; each goes on until it is cancelled, as the life does when it ends."""

    def __init__(
        self,
        kind: JobKind[E, C],
        worker_id: str,
        database: Database,
        lease: Lease,
        intake: EffectConsumer[E],
        executor: KeyedExecutor,
        in_flight: InFlight[C],
        failpoint: Failpoint,
    ) -> None:
        """`lease` is ended when the database says that the worker is dead."""
        self._kind = kind
        self._worker_id = worker_id
        self._database = database
        self._lease = lease
        self._consumer = intake
        self._executor = executor
        self._in_flight = in_flight
        self._failpoint = failpoint
        self._claiming = asyncio.Lock()

    async def from_topic(self) -> None:
        """Claim effects as they come, and commit their offsets once their claims are durable."""
        while True:
            await self._consumer.fetch()
            while self._consumer.pending:
                await self._room()
                async with self._claiming:
                    await self._claim()
                await self._failpoint("before commit")
                await self._consumer.commit()
                await self._failpoint("after commit")
            await self._consumer.commit()

    async def from_others(self) -> None:
        """Take over what the dead left and others gave back; finish the claims of theirs that are over."""
        for looks in itertools.count():
            await asyncio.sleep(TAKE_OVER_SECONDS)
            async with self._claiming:
                if free := self._executor.free_slots:
                    self._in_flight.start(await self._ask(partial(self._taken_over, limit=free)))
                    await self._failpoint("after take-over")
                if looks % LOOK_FOR_MISSED == 0:
                    if free := self._executor.free_slots:
                        self._in_flight.start(await self._ask(partial(self._claimed_late, limit=free)))
                    await self._ask(self._give_back_unknown)
            await self._ask(lambda connection: claims.finish_over(connection, self._worker_id))

    async def _claim(self) -> None:
        free = self._executor.free_slots
        if not free:
            # What was taken over meanwhile needs it.
            return
        # Most may be over or somebody else's; but they are not all to be asked for again for each slot.
        asked = self._consumer.pending[: max(WINDOW, 4 * free)]
        await self._failpoint("before claim")
        claiming = await self._ask(
            lambda connection: self._kind.claim(connection, self._worker_id, asked, free)
        )
        await self._failpoint("after claim")
        self._in_flight.start(claiming.claimed)
        self._consumer.ack(asked, claiming.left)

    async def _room(self) -> None:
        while not self._executor.free_slots:
            await self._consumer.keep_membership()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._executor.wait_for_slot()

    async def _taken_over(self, connection: Connection, limit: int) -> list[C]:
        taken = await self._kind.take_over(connection, self._worker_id, limit)
        for one in taken:
            _log.info(
                "run.taken_over" if self._kind.kind == "inference" else "call.taken_over",
                worker=self._worker_id,
                context_id=one.context_id,
                of=self._kind.subject(one),
            )
        return taken

    async def _claimed_late(self, connection: Connection, limit: int) -> list[C]:
        unclaimed = await self._kind.unclaimed(connection, self._worker_id, limit)
        if not unclaimed:
            return []
        return (await self._kind.claim(connection, self._worker_id, unclaimed, limit)).claimed

    async def _give_back_unknown(self, connection: Connection) -> None:
        """Of claims that are younger than a lease the answer may be on its way, to a connection that is broken by now:
        they are given back at a later look."""
        count = await claims.release_all_but(
            connection, self._worker_id, self._in_flight.known(), older_than_secs=self._lease.seconds
        )
        if count:
            _log.info("worker.unknown_claims_released", worker=self._worker_id, count=count)

    async def _ask(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        """A statement that needs a live worker. If this one is dead, its lease is over, and the life ends."""
        try:
            return await self._database.do(statement)
        except WorkerDeadError:
            self._lease.end()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # cancelled by the life

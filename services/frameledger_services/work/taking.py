"""Taking work, for one life of a worker: effects off their topic, the work of the dead, and what nobody claimed.

It is taken only where a lane is free. One claim is under way at a time, so that two never count the same free place.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

import structlog

from frameledger_services import claims
from frameledger_services.claims import Claimed, WorkerDeadError
from frameledger_services.claims.values import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.lanes import Lanes
from frameledger_services.work.database import Database
from frameledger_services.work.in_hand import InHand
from frameledger_services.work.intake import Intake
from frameledger_services.work.lease import Lease
from frameledger_services.work.trades import Trade

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

_log = structlog.get_logger("worker")


class Taking(Generic[E, C]):
    """Two ways of taking work; each goes on until it is cancelled, as the life does when it ends."""

    def __init__(
        self,
        trade: Trade[E, C],
        worker_id: str,
        database: Database,
        lease: Lease,
        intake: Intake[E],
        lanes: Lanes,
        in_hand: InHand[C],
        failpoint: Failpoint,
    ) -> None:
        """`lease` is ended when the database says that the worker is dead."""
        self._trade = trade
        self._worker_id = worker_id
        self._database = database
        self._lease = lease
        self._intake = intake
        self._lanes = lanes
        self._in_hand = in_hand
        self._failpoint = failpoint
        self._claiming = asyncio.Lock()

    async def from_topic(self) -> None:
        """Claim effects as they come, and commit their offsets once their claims are durable."""
        while True:
            await self._intake.fetch()
            while self._intake.pending:
                await self._room()
                async with self._claiming:
                    await self._claim()
                await self._failpoint("before commit")
                await self._intake.commit()
                await self._failpoint("after commit")
            await self._intake.commit()

    async def from_others(self) -> None:
        """Take over what the dead left and others gave back; finish the claims of theirs that are over."""
        for looks in itertools.count():
            await asyncio.sleep(TAKE_OVER_SECONDS)
            async with self._claiming:
                if free := self._lanes.free:
                    self._in_hand.start(await self._ask(partial(self._taken_over, limit=free)))
                    await self._failpoint("after take-over")
                if looks % LOOK_FOR_MISSED == 0:
                    if free := self._lanes.free:
                        self._in_hand.start(await self._ask(partial(self._claimed_late, limit=free)))
                    await self._ask(self._give_back_unknown)
            await self._ask(lambda connection: claims.finish_over(connection, self._worker_id))

    async def _claim(self) -> None:
        free = self._lanes.free
        if not free:
            # What was taken over meanwhile needs it.
            return
        # Most may be over or somebody else's; but they are not all to be asked for again for each slot.
        asked = self._intake.pending[: max(WINDOW, 4 * free)]
        await self._failpoint("before claim")
        claiming = await self._ask(
            lambda connection: self._trade.claim(connection, self._worker_id, asked, free)
        )
        await self._failpoint("after claim")
        self._in_hand.start(claiming.claimed)
        self._intake.dealt_with(asked, claiming.left)

    async def _room(self) -> None:
        while not self._lanes.free:
            await self._intake.stay()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._lanes.wait_free()

    async def _taken_over(self, connection: Connection, limit: int) -> list[C]:
        return await self._trade.take_over(connection, self._worker_id, limit)

    async def _claimed_late(self, connection: Connection, limit: int) -> list[C]:
        missed = await self._trade.missed(connection, self._worker_id, limit)
        if not missed:
            return []
        return (await self._trade.claim(connection, self._worker_id, missed, limit)).claimed

    async def _give_back_unknown(self, connection: Connection) -> None:
        """Of claims that are younger than a lease the answer may be on its way, to a connection that is broken by now:
        they are given back at a later look."""
        count = await claims.release_all_but(
            connection, self._worker_id, self._in_hand.known(), older_than_secs=self._lease.seconds
        )
        if count:
            _log.info("given back what nobody here knows of", worker=self._worker_id, count=count)

    async def _ask(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        """A statement that needs a live worker. If this one is dead, its lease is over, and the life ends."""
        try:
            return await self._database.do(statement)
        except WorkerDeadError:
            self._lease.end()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]  # cancelled by the life

"""A job: one piece of claimed work, when it has to stop, and what it works with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from frameledger_services import claims
from frameledger_services.claims import Claimed
from frameledger_services.work.database import Database
from frameledger_services.work.lease import Lease
from frameledger_services.work.publisher import Publisher

StopReason = Literal["over", "lost", "draining"]
"""Why a job must stop. `over`: its run is closed, or its call is settled or must be cancelled. `lost`: another worker
has the work, or may have it, so nothing may be published any more. `draining`: the process ends."""

Ending = Literal["done", "over", "given_up", "release", "untried"]
"""What becomes of a claim: it is finished in one of three ways, or given back, for another worker's next attempt or,
when nothing of this one was published, for the same."""

C = TypeVar("C", bound=Claimed)


@dataclass(slots=True, eq=False)
class Job(Generic[C]):
    """Claimed work, from its claim until its code returns.

    `stop` may be set before the work begins, and, for a run or call whose own last frame was folded quicker than its
    code returned, at the very end: `over` is then no news. `lost` outranks `draining` outranks `over`.
    """

    claimed: C
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    why: StopReason | None = None
    release_order: Callable[[], None] = lambda: None
    """Lets the next job of this context begin while this one goes on."""

    def tell(self, why: StopReason) -> None:
        """Say that it is to stop. A weaker reason changes nothing."""
        if self.why is None or _RANK[why] > _RANK[self.why]:
            self.why = why
        self.stop.set()


_RANK: dict[StopReason, int] = {"over": 0, "draining": 1, "lost": 2}


@dataclass(frozen=True, slots=True)
class Session:
    """One life of a worker, as its jobs see it."""

    worker_id: str
    publisher: Publisher
    """Within this life's lease."""

    lease: Lease
    """`lease.valid()` is to be asked right before a deed that must not happen without it."""

    database: Database

    async def next_attempt(self, claimed: Claimed, attempt: int) -> int | None:
        """Keep a job's work with the next attempt number; None if it is not ours any more, or not for certain.

        Waits while the database is away. Raises `LeaseLostError`.
        """
        async with self.lease.held():
            return await self.database.do(
                lambda connection: claims.next_attempt(
                    connection, self.worker_id, claimed.effect_id, claimed.claim, attempt
                )
            )


Perform = Callable[[Job[C], Session], Awaitable[Ending]]
"""Does one job, and says what becomes of its claim; it does not touch the claim itself.

`LeaseLostError` may leave it, and so may what is transient (broker, database): the claim is released
then, for another attempt. Anything else that it raises is a bug and ends the process. When it is told to stop it has
`work_grace_secs` to return if it is draining or lost; then it is cancelled.
"""

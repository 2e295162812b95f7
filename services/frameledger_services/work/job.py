"""A job: one piece of claimed work, when it has to stop, and the session in which it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Generic, Literal, TypeVar

from frameledger_services import claims
from frameledger_services.claims import Claimed
from frameledger_services.telemetry.tracing import NO_SPAN, Span
from frameledger_services.work.database import Database
from frameledger_services.work.lease import Lease
from frameledger_services.work.publisher import WorkerPublisher

StopReason = Literal["obsolete", "claim_lost", "draining"]
"""Why a job must stop. `obsolete`: its run is closed, or its call is settled or must be cancelled. `claim_lost`: the
work belongs, or may belong, to another worker, so nothing may be published any more. `draining`: the process ends."""

Ending = Literal["done", "over", "given_up", "release", "untried"]
"""What happens to a claim. It is finished as one of `claims.Finish`, or released: with `release` for the next attempt,
with `untried` for the same attempt again, because nothing of this one was published."""

C = TypeVar("C", bound=Claimed)


@dataclass(slots=True, eq=False)
class Job(Generic[C]):
    """Claimed work, from its claim until its code returns.

    `stop` may be set before the work begins. It is also set, as `obsolete`, if the job's own last frame is folded
    before its code returns; then there is nothing to stop. `claim_lost` takes precedence over `draining`, and that over
    `obsolete`.
    """

    claimed: C
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    stop_reason: StopReason | None = None
    release_order: Callable[[], None] = lambda: None
    """Lets the next job of this context begin while this one runs."""

    span: Span = NO_SPAN
    """The span from the claim until the code returns; it is current while the code runs."""

    claimed_at: float = field(default_factory=monotonic)
    """When the database granted the claim, by `monotonic`. The job may begin later."""

    _on_stop_request: Callable[[StopReason], None] = field(default=lambda _: None, init=False)

    def request_stop(self, why: StopReason) -> None:
        """Ask the job to stop. A weaker reason than the current one does not replace it."""
        self.stop_reason = stronger(self.stop_reason, why)
        self.stop.set()
        self._on_stop_request(self.stop_reason)

    def on_stop_request(self, listener: Callable[[StopReason], None]) -> None:
        """Call `listener` with the reason of every stop request from now on, and at once if there was one before.

        Repeated requests are passed on too: if the database lost an interruption in a failover, the next heartbeat
        reports it again once it is folded again.
        """
        self._on_stop_request = listener
        if self.stop_reason is not None:
            listener(self.stop_reason)


_RANK: dict[StopReason, int] = {"obsolete": 0, "draining": 1, "claim_lost": 2}


def stronger(current: StopReason | None, new: StopReason) -> StopReason:
    """Returns the reason that applies if a job has to stop for both."""
    return new if current is None or _RANK[new] > _RANK[current] else current


@dataclass(frozen=True, slots=True)
class Session:
    """One session of a worker, as its jobs see it."""

    worker_id: str
    publisher: WorkerPublisher
    """Publishes within the lease of this session."""

    lease: Lease
    """Check `lease.valid()` right before a side effect that must not happen without the lease."""

    database: Database

    async def next_attempt(self, claimed: Claimed, attempt: int) -> int | None:
        """Keep a job's claim, with the next attempt. Returns its number; None if the claim is lost, or may be.

        Waits during an outage of the database. Raises `LeaseLostError`.
        """
        async with self.lease.held():
            return await self.database.do(
                lambda connection: claims.next_attempt(
                    connection, self.worker_id, claimed.effect_id, claimed.claim, attempt
                )
            )


Perform = Callable[[Job[C], Session], Awaitable[Ending]]
"""Does one job. Returns what happens to its claim, which it does not change itself.

It may raise `LeaseLostError` and transient errors of broker and database; the claim is then released for another
attempt. Any other error is a bug and ends the process. If it is asked to stop because the worker is draining or lost
the claim, it has `work_grace_secs` to return; then its task is cancelled.
"""

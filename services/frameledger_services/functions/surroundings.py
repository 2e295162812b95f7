"""What a call is given by the process that runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from frameledger.frames import AnyFrame
from frameledger_services.claims import ClaimedCall
from frameledger_services.functions.acts import Acts
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.handling import Handlers
from frameledger_services.functions.ledger import Ledger
from frameledger_services.functions.params import FunctionCallParams
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.reporting import Reporter
from frameledger_services.functions.tails import Tails
from frameledger_services.work import Job, LeaseLostError, Session


class Hands(Protocol):
    """How the worker that has a call speaks."""

    async def publish(self, context_id: str, *frames: AnyFrame) -> object:
        """As `work.Publisher.publish`."""
        ...

    def may_publish(self) -> bool:
        """Whether its lease holds. From any thread."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The same for all calls of a process."""

    ledger: Ledger
    handlers: Handlers
    acts: Acts
    tails: Tails
    stop_secs: float
    """How long a handler has to stop when it is told to."""

    notify: Callable[[str, Any], Awaitable[None]]
    """Calls the hooks of an event."""

    params: Callable[[Call, Plan, Reporter], FunctionCallParams]


class SessionHands:
    """Publishes within the lease of one life of the worker, and while the job is not another worker's."""

    def __init__(self, session: Session, job: Job[ClaimedCall] | None = None) -> None:
        self._session = session
        self._job = job

    async def publish(self, context_id: str, *frames: AnyFrame) -> object:
        if not self.may_publish():
            raise LeaseLostError
        return await self._session.publisher.publish(context_id, *frames)

    def may_publish(self) -> bool:
        return self._session.lease.valid() and (self._job is None or self._job.why != "lost")

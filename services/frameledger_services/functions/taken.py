"""A call that this worker has taken: what all who act on it share, and how it stands now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import structlog

from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.inbox import Inbox
from frameledger_services.functions.ledger import Standing
from frameledger_services.functions.planning import Plan
from frameledger_services.functions.speaking import AGAIN_SECONDS, Speaker
from frameledger_services.functions.surroundings import Hands, Surroundings
from frameledger_services.store.connections import DatabaseError

_log = structlog.get_logger("functions")


@dataclass(frozen=True, slots=True)
class Taken:
    """A call, its terms, who speaks for it, and what comes in for it."""

    call: Call
    plan: Plan
    around: Surroundings
    hands: Hands
    speaker: Speaker
    inbox: Inbox
    deadline: float
    """By the clock of the event loop, as all times here."""

    failpoint: Failpoint
    """Told of each point that is passed; tests end the process there."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def is_late(self) -> bool:
        """Whether its deadline has passed."""
        return self.now() >= self.deadline

    def stops_by(self) -> float:
        """Until when a handler that is told to stop now has time for that."""
        return self.now() + self.around.stop_secs

    async def read_again(self) -> Standing | None:
        """How the call stands; null if it cannot be known before its deadline, or within the lease."""
        while True:
            try:
                return await self.around.ledger.standing(self.call)
            except DatabaseError as error:
                _log.warning("cannot read how a call stands", **self.call.names(), error=str(error))
            if not self.hands.may_publish() or self.is_late:
                return None
            await asyncio.sleep(AGAIN_SECONDS)

"""What the log says of a conversation, as it is heard: a stored frame, and why there is no answer."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from frameledger.errors import TransientError
from frameledger.frames import AnyFrame
from frameledger_services.client import StoredFrame


@dataclass(frozen=True, slots=True)
class Told:
    """A frame of this conversation that is stored."""

    version: int
    frame_id: UUID
    outcome: str
    reason: str | None
    frame: AnyFrame

    @property
    def counts(self) -> bool:
        return self.outcome == "applied"


def told_of(one: StoredFrame) -> Told:
    return Told(one.version, one.frame_id, one.outcome, one.reason, one.frame)


class AskingError(TransientError):
    """A question was not answered: the message says how far it came.

    Remedy: See whether the broker, a projector and an inference worker run (`frameledger status`), and ask again.
    """

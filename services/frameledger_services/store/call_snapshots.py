"""The state of a call at one moment, and whether a frame about it was folded: what a worker learns about its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple
from uuid import UUID

from frameledger_services.database_types import Connection
from frameledger_services.store.tool_calls import NOT_SETTLED, CallKey

_OPEN = NOT_SETTLED | {"waiting"}


class FrameOfCall(NamedTuple):
    """A frame, and the call that is read with it, if any."""

    context_id: str
    frame_id: str
    call: CallKey | None


class Interruption(NamedTuple):
    """The frame that interrupted a call."""

    version: int
    frame_id: UUID | None


@dataclass(frozen=True, slots=True)
class CallSnapshot:
    """A frame and its call at one moment: whether the frame was folded, and the state of the call."""

    asked_at: float
    """When the read was sent, by `monotonic`: nothing in the snapshot is older."""

    version: int | None = None
    """The version of the frame; None while it is not stored."""

    outcome: str | None = None
    """The outcome of the frame."""

    status: str | None = None
    """The status of the call; None if it is not in the tables."""

    worker: str | None = None
    attempt: int | None = None
    safe_to_retry: bool | None = None
    interrupted_version: int | None = None
    claim: str | None = None
    """The claim token in the latest start of the call."""

    by_timekeeper: bool = False
    """Whether the timekeeper started the call in order to settle it: nothing ran."""

    interrupted_by: UUID | None = None

    reason: str | None = None
    """Why the frame was ignored."""

    erased: bool = False
    """Whether the call is not in the tables because its conversation was erased since."""

    @property
    def interruption(self) -> Interruption | None:
        """The frame that requested the cancellation of the call."""
        version = self.interrupted_version
        return None if version is None else Interruption(version, self.interrupted_by)

    @property
    def folded(self) -> bool:
        """Whether the frame's outcome is final. A parked frame is folded once its conversation is unparked."""
        return self.outcome is not None and self.outcome != "parked"

    @property
    def is_open(self) -> bool:
        """Whether the call may still be settled."""
        return self.status in _OPEN

    @property
    def is_left_alone(self) -> bool:
        """Whether a worker that takes the call over has nothing to do: it is settled or erased, or waits for an answer.
        An interrupted call has to be cancelled."""
        if self.status is None:
            return self.erased
        return not self.is_open or (self.status == "waiting" and self.interrupted_version is None)

    @property
    def is_over(self) -> bool:
        """Whether the call is settled, or was interrupted or erased."""
        if self.status is None:
            return self.erased
        return not self.is_open or self.interrupted_version is not None


async def snapshots(connection: Connection, questions: Sequence[FrameOfCall]) -> list[CallSnapshot]:
    """Returns the status of each of these frames with its call, in the given order, all at one moment."""
    asked_at = monotonic()
    cursor = await connection.execute(
        """
        SELECT
            stored.version, stored.outcome,
            call.status, call.worker, call.attempt, call.safe_to_retry, call.interrupted_version, call.claim,
            EXISTS (SELECT FROM workers WHERE workers.worker_id = call.worker AND workers.kind = 'timekeeper'),
            interruption.frame_id, stored.reason,
            call.context_id IS NULL AND EXISTS (
                SELECT FROM erasures
                WHERE erasures.context_id = asked.context_id AND erasures.version >= asked.requested_version
            )
        FROM unnest(%s::text[], %s::uuid[], %s::bigint[], %s::integer[])
            WITH ORDINALITY AS asked (context_id, frame_id, requested_version, ordinal, place)
        LEFT JOIN frames AS stored
            ON stored.context_id = asked.context_id AND stored.frame_id = asked.frame_id
        LEFT JOIN tool_calls AS call
            ON call.context_id = asked.context_id AND call.requested_version = asked.requested_version
            AND call.ordinal = asked.ordinal
        LEFT JOIN frames AS interruption
            ON interruption.context_id = call.context_id AND interruption.version = call.interrupted_version
        ORDER BY asked.place
        """,
        (
            [one.context_id for one in questions],
            [one.frame_id for one in questions],
            [one.call and one.call[0] for one in questions],
            [one.call and one.call[1] for one in questions],
        ),
    )
    return [CallSnapshot(asked_at, *row) for row in await cursor.fetchall()]

"""A conversation after its erasure, for restoring missing frames: where its records begin, and which were skipped."""

from __future__ import annotations

from datetime import datetime

from frameledger.evolve import evolve
from frameledger.evolve.state import State
from frameledger.ids import ContextId
from frameledger.record import LoggedFrame, LogPosition
from frameledger_services.database_types import Connection
from frameledger_services.projector import stored_heads
from frameledger_services.projector.head import Head
from frameledger_services.projector.late_frames import is_late, is_late_whatever_is_known
from frameledger_services.projector.rebuild_fold import DamagedFramesError
from frameledger_services.projector.refold import Refold, UnfoldableFrameError
from frameledger_services.store import erasures, stored_rows
from frameledger_services.store.valid_to import FOR_EVER


class Life:
    """The current life of a conversation: its part after the latest erasure. Its state is folded from the stored frames
    up to each gap, and from the restored ones, because the runs and calls in it decide which records the projector
    skipped (RA5.lives).

    Without an erasure nothing is folded, and no record was skipped.
    """

    def __init__(self, connection: Connection, head: Head, parked_version: int | None) -> None:
        self._connection = connection
        self._head = head
        self._refold = Refold(head, unknown_again=True)
        self._state: State = head.state
        self._upto = FOR_EVER if parked_version is None else parked_version - 1
        self.context_id = head.context_id
        self.first_version = head.version + 1
        self.first_chain = head.chain
        self.not_before = head.last_at
        """The time of the erasing frame, which no frame of this life precedes; None without an erasure."""

    @classmethod
    async def load(cls, connection: Connection, context_id: ContextId) -> Life:
        head = await stored_heads.beginning(connection, context_id)
        stored = await stored_rows.heads(connection, [context_id]) if head.state.erased is not None else {}
        return cls(connection, head, stored[context_id]["parked_version"] if stored else None)

    async def is_over(self) -> bool:
        """Returns whether the conversation was erased since this was loaded."""
        newest = await stored_heads.beginning(self._connection, self._head.context_id)
        return newest.version + 1 != self.first_version

    async def place_before(self, topic: str, partition: int) -> LogPosition | None:
        """Returns the position of the last record of the erased life in a partition: that of the erasing frame, else of
        its last stored frame. None if there is none."""
        if self._head.state.erased is None:
            return None
        for receipt in await erasures.receipts(self._connection, self._head.context_id):
            if receipt.version == self.first_version - 1:
                places = [
                    LogPosition(topic, partition, place.last_offset, place.generation)
                    for place in receipt.places
                    if place.partition == partition
                ]
                if (
                    receipt.partition == partition
                    and receipt.generation is not None
                    and receipt.offset is not None
                ):
                    places.append(LogPosition(topic, partition, receipt.offset, receipt.generation))
                return max(places, key=_order_on_the_log, default=None)
        return None

    async def advance(self, version: int) -> None:
        """Fold the stored frames up to a version. Raises `DamagedFramesError`."""
        head = self._head
        if head.state.erased is None:
            return
        try:
            async for page in stored_rows.frames(
                self._connection, head.context_id, after=head.version, upto=min(version, self._upto)
            ):
                self._refold.fold(page)
        except UnfoldableFrameError as error:
            raise DamagedFramesError(head.context_id, error.version, error.problem) from error
        self._state = head.state

    def is_left_out(self, version: int, logged: LoggedFrame) -> bool:
        """Returns whether the projector skipped this record, so that its version belongs to another one."""
        is_left_out = is_late if version <= self._upto else is_late_whatever_is_known
        return is_left_out(self._state, self._head.erased_at, logged)

    def fold(self, version: int, logged: LoggedFrame, logged_at: datetime) -> None:
        """Fold a restored frame, so that `is_left_out` knows the runs and calls that it began."""
        if self._head.state.erased is not None and version <= self._upto:
            self._state = evolve(self._state, logged.frame, logged_at).state


def _order_on_the_log(place: LogPosition) -> tuple[int, int]:
    return place.generation, place.offset

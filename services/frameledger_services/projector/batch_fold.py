"""The fold of a batch: decoded records and heads in, rows out. Pure, except that it advances the heads in place.

A record becomes a frame of its conversation (applied, ignored or unknown), a copy that is forwarded to the partition of
its conversation, a duplicate, which is only counted, or a dead letter with a reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from frameledger.chain import next_link
from frameledger.evolve import evolve
from frameledger.frames import LLMContextEraseFrame
from frameledger.ids import Version
from frameledger.react import react
from frameledger.record import DecodeError, LoggedFrame, Record, place_of
from frameledger.values import replace
from frameledger_services.event_log.topics import MAX_DEAD_LETTER_BYTES, home_partition
from frameledger_services.projector.decoded import DecodedRecord, Unstorable
from frameledger_services.projector.duplicates import is_duplicate
from frameledger_services.projector.fold_errors import PossibleDuplicateError, UnfoldableError
from frameledger_services.projector.frame_row import frame_row, logged_at_of
from frameledger_services.projector.head import Head
from frameledger_services.projector.late_frames import is_late, is_late_whatever_is_known
from frameledger_services.projector.outbox_rows import dead_letter_row, effect_row, forward_row, readable_key
from frameledger_services.projector.ownership import ProjectorTopics
from frameledger_services.projector.row_values import clean
from frameledger_services.projector.rows import DeadLetterRow, FrameRow, Rows, erasure_of
from frameledger_services.projector.step_rows import write_step
from frameledger_services.store.erasures import Beginning
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.outbox import OutboxRow


@dataclass(frozen=True, slots=True)
class StoredIds:
    """Frames that are already stored, with their payloads, by context and id; and erasures, of which only the receipt
    is stored."""

    frames: dict[tuple[str, UUID], bytes]
    erasures: dict[tuple[str, UUID], bytes]


class BatchFold:
    """Collects the rows of one batch.

    `heads` has every conversation of the batch that belongs to its partition. `stored_ids` has the frames that are
    already stored, or is None on the fast path, where a unique violation reveals them. Frames of the partitions in
    `held` cause no effects.
    """

    def __init__(
        self,
        heads: dict[str, Head],
        topics: ProjectorTopics,
        stored_ids: StoredIds | None,
        held: Container[int] = (),
        *,
        refuse_erased: bool = False,
    ) -> None:
        self._parts = [Rows()]
        # For conversations that this batch erases: the part that has the rows of the current life.
        self._lives: dict[str, int] = {}
        self.duplicates = 0
        """The number of repeated frames."""

        self.touched: dict[str, Head] = {}
        self._heads = heads
        self._topics = topics
        # This batch adds its own frames.
        self._stored_ids = (
            None if stored_ids is None else StoredIds(dict(stored_ids.frames), dict(stored_ids.erasures))
        )
        self._held = held
        self._refuse_erased = refuse_erased

    def fold(self, batch: Iterable[DecodedRecord]) -> list[Rows]:
        """Fold records in the order of their partitions. Returns their rows in parts: the first part has the rows up to
        the first erasure of a conversation in this batch, the next part those of the life after it, and so on.

        Raises `UnfoldableError` for a frame that makes the fold raise, and `PossibleDuplicateError`. Discard the heads
        after either.
        """
        for record, logged in batch:
            try:
                if isinstance(logged, DecodeError | Unstorable):
                    self._dead_letter(record, logged.reason, logged.detail)
                elif is_at_home(record, self._topics.partitions):
                    self._fold_frame(record, logged)
                else:
                    self._forward(record, logged)
            except (UnfoldableError, PossibleDuplicateError):
                raise
            except Exception as error:
                raise UnfoldableError(record, error) from error
        return self._parts_to_write()

    def _fold_frame(self, record: Record, logged: LoggedFrame) -> None:
        head = self._heads[logged.context_id]
        if head.state.erased is not None and self._is_left_out(record, logged, head):
            return
        value = record.value or b""
        frame_id = frame_uuid(logged.frame_id)
        value_hash = hash(value)
        if self._is_known(head, logged, frame_id, value_hash):
            return
        head.remember(frame_id, value_hash)
        if self._stored_ids is not None:
            self._stored_ids.frames[head.context_id, frame_id] = value
        self.touched[head.context_id] = head
        logged_at = logged_at_of(record, head)
        outcome, reason = self._evolve(record, logged, head, frame_id, logged_at)
        version = head.version + 1
        head.chain = next_link(head.chain, version, logged.source, value)
        head.version = version
        head.started_at = head.started_at or logged_at
        head.last_at = logged_at
        if outcome != "parked":
            head.unsaved_bytes += len(value)
        row = frame_row(record, logged, head, frame_id, logged_at, outcome, reason)
        self._rows_of(head.context_id).frames.append(row)
        erased = head.state.erased
        if erased is not None and erased.version == version:
            self._erase(head, logged, row, value_hash)

    def _evolve(
        self, record: Record, logged: LoggedFrame, head: Head, frame_id: UUID, logged_at: datetime
    ) -> tuple[str, str | None]:
        before, rows = head.state, self._rows_of(head.context_id)
        if head.parked_version is not None:
            if not isinstance(logged.frame, LLMContextEraseFrame):
                return "parked", None
            # An erasure also removes the frames that could not be folded.
            before = replace(before, version=Version(head.version))
        try:
            step = evolve(before, logged.frame, logged_at)
            effects = (
                () if record.partition in self._held else react(before, logged.frame, step.state, frame_id)
            )
            write_step(rows, head, logged.frame, step, before, logged_at)
        except Exception as error:
            raise UnfoldableError(record, error) from error
        head.state = step.state
        if step.outcome == "unknown":
            head.counters.unknown += 1
        for ordinal, effect in enumerate(effects):
            place = place_of(record)
            to_topic = self._topics.effects[effect.effect]
            rows.outbox.append(effect_row(effect, place, ordinal, to_topic, logged.traceparent))
        return step.outcome, step.reason

    def _is_left_out(self, record: Record, logged: LoggedFrame, head: Head) -> bool:
        """Whether a frame arrived after an erasure and belongs to an erased life (RA5.lives), or would begin a new life
        where that is refused."""
        frame, erased = logged.frame, head.state.erased
        if erased is None or isinstance(frame, LLMContextEraseFrame):
            return False
        # The state of a parked conversation does not have its newest calls.
        is_left_out = is_late if head.parked_version is None else is_late_whatever_is_known
        if is_left_out(head.state, head.erased_at, logged):
            key = head.context_id, int(erased.version)
            late = self._parts[0].late
            late[key] = late.get(key, 0) + 1
            return True
        if self._refuse_erased and head.is_blank:
            without_its_value = replace(record, value=None, headers=())
            error = "this conversation was erased, and its id must not be reused (FRAMELEDGER_ERASED_IDS)"
            self._dead_letter(without_its_value, "context_erased", error, head.context_id)
            return True
        return False

    def _erase(self, head: Head, logged: LoggedFrame, row: FrameRow, value_hash: int) -> None:
        """End a life. The next frame of this conversation is folded on a new head that continues its versions, and its
        rows are in the next part."""
        frame, context_id = logged.frame, head.context_id
        assert isinstance(frame, LLMContextEraseFrame)
        if self._stored_ids is None:
            # Its id may be that of a receipt, which the unique constraints of `frames` do not cover.
            raise PossibleDuplicateError
        life = self._lives.get(context_id, 0)
        self._parts[life].erasures[context_id] = erasure_of(
            context_id, row.version, frame, row.partition, row.offset
        )
        self._lives[context_id] = life + 1
        if len(self._parts) == life + 1:
            self._parts.append(Rows())
        begins = Beginning(context_id, row.version, row.chain, row.logged_at, row.logged_at)
        self._heads[context_id] = after = Head.after_erasure(begins)
        after.remember(row.frame_id, value_hash)
        del self.touched[context_id]
        ids = self._stored_ids
        of_others = {key: value for key, value in ids.frames.items() if key[0] != context_id}
        self._stored_ids = StoredIds(of_others, ids.erasures | {(context_id, row.frame_id): row.payload})

    def _parts_to_write(self) -> list[Rows]:
        """Returns the parts. The only effects kept of a life that is erased in this batch are cancellations of its
        work."""
        for part, following in itertools.pairwise(self._parts):
            published, stopped = part.outbox, list[OutboxRow]()
            part.outbox = []
            for row in published:
                erasure = None if row.kind == "forward" else part.erasures.get(row.context_id or "")
                if erasure is None:
                    part.outbox.append(row)
                elif (row.partition, row.offset) == (erasure.partition, erasure.offset):
                    stopped.append(row)
            following.outbox[:0] = stopped
        return self._parts

    def _rows_of(self, context_id: str) -> Rows:
        return self._parts[self._lives.get(context_id, 0)] if self._lives else self._parts[0]

    def _is_known(self, head: Head, logged: LoggedFrame, frame_id: UUID, value_hash: int) -> bool:
        """Whether a frame with this id was folded before. If its content is the same, it is counted as a duplicate;
        otherwise this one becomes a dead letter.

        An id that is derived from an offset occurs twice only if a record was forwarded twice, or was republished after
        the log lost it.
        """
        if self._stored_ids is None:
            known = head.recent.get(frame_id)
            if known is None:
                return False
            if known != value_hash:
                raise PossibleDuplicateError
            is_repeated = True
        else:
            stored = self._stored_ids.frames.get((head.context_id, frame_id))
            if stored is None and isinstance(logged.frame, LLMContextEraseFrame):
                stored = self._stored_ids.erasures.get((head.context_id, frame_id))
            if stored is None:
                return False
            is_repeated = is_duplicate(logged.record.value or b"", stored)
        if is_repeated:
            self.duplicates += 1
            head.remember(frame_id, value_hash)
            if not head.is_blank:
                head.counters.duplicates += 1
                self.touched[head.context_id] = head
        else:
            self._dead_letter(
                logged.record,
                "id_reused",
                f"the id {logged.frame_id} belongs to another frame of this conversation; give each frame its own id",
                logged.context_id,
            )
        return True

    def _forward(self, record: Record, logged: LoggedFrame) -> None:
        """Forward a record to the partition of its conversation."""
        self._parts[0].outbox.append(forward_row(record, logged))

    def _dead_letter(self, record: Record, code: str, error: str, context_id: str | None = None) -> None:
        context_id = context_id or readable_key(record)
        rows = self._rows_of(context_id or "")
        rows.rejections.append(DeadLetterRow(record, code, clean(error), context_id))
        letter = dead_letter_row(record, code, error, self._topics.dead_letters)
        # Uncompressed, the record may be too large for any topic. `rejected_frames` always has it.
        if letter.size <= MAX_DEAD_LETTER_BYTES:
            rows.outbox.append(letter)


def is_at_home(record: Record, partitions: int) -> bool:
    """Returns whether a record is in the partition to which its key belongs."""
    return home_partition(record.key or b"", partitions) == record.partition

"""The fold of a batch: decoded records and heads in, rows out. Pure, except that it advances the heads in place.

A record becomes a frame of its conversation (applied, ignored, unknown), a copy that is forwarded to the partition of
its conversation, a duplicate, which is counted, or a dead letter, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from uuid import UUID

from frameledger.decoding import MAX_ID_BYTES
from frameledger.errors import RefusedError
from frameledger.evolve import evolve
from frameledger.frames import AnyFrame
from frameledger.react import react
from frameledger.record import DecodeError, LoggedFrame, Record, place_of
from frameledger_services.event_log.topics import MAX_DEAD_LETTER_BYTES, home_partition
from frameledger_services.projector.decoded import DecodedRecord, Unstorable
from frameledger_services.projector.duplicates import is_duplicate
from frameledger_services.projector.head import Head, chained
from frameledger_services.projector.outbox_rows import (
    dead_letter_row,
    effect_row,
    forward_row,
    readable_key,
    size_of,
)
from frameledger_services.projector.rows import DeadLetter, FrameRow, Rows, at, clean, time_of
from frameledger_services.projector.step_rows import write_step
from frameledger_services.store.frame_ids import frame_uuid


class BatchFold:
    """Collects the rows of one batch.

    `heads` has every conversation of the batch that belongs to its partition. `stored_ids` has the ids of frames that
    are stored already, with their payloads; None on the fast path, where a unique violation finds them. Frames of the
    partitions that are `held` have no effects.
    """

    def __init__(
        self,
        heads: Mapping[str, Head],
        partitions: int,
        effects_topic: Callable[[str], str],
        dead_letters: str,
        stored_ids: Mapping[tuple[str, UUID], bytes] | None,
        held: Container[int] = (),
    ) -> None:
        self.rows = Rows()
        self.touched: dict[str, Head] = {}
        self._heads = heads
        self._partitions = partitions
        self._effects_topic = effects_topic
        self._dead_letters = dead_letters
        # This batch adds its own.
        self._stored_ids = None if stored_ids is None else dict(stored_ids)
        self._held = held

    def fold(self, batch: Iterable[DecodedRecord]) -> Rows:
        """Fold records, in the order of their partitions. Raises `UnfoldableError` for a frame that makes the fold
        raise, and `PossibleDuplicateError`; the heads must not be used after that."""
        for record, logged in batch:
            try:
                if isinstance(logged, DecodeError | Unstorable):
                    self._dead_letter(record, logged.reason, logged.detail)
                elif is_at_home(record, self._partitions):
                    self._fold_frame(record, logged)
                else:
                    self._forward(record, logged)
            except (UnfoldableError, PossibleDuplicateError):
                raise
            except Exception as error:
                raise UnfoldableError(record, error) from error
        return self.rows

    def _fold_frame(self, record: Record, logged: LoggedFrame) -> None:
        head = self._heads[logged.context_id]
        value = record.value or b""
        frame_id = frame_uuid(logged.frame_id)
        value_hash = hash(value)
        if self._is_known(head, logged, frame_id, value_hash):
            return
        head.remember(frame_id, value_hash)
        if self._stored_ids is not None:
            self._stored_ids[head.context_id, frame_id] = value
        self.touched[head.context_id] = head
        logged_at = _logged_at(record, head)
        outcome, reason = self._evolve(record, logged, head, logged_at)
        version = head.version + 1
        head.chain = chained(head.chain, version, logged.source, value)
        head.version = version
        head.started_at = head.started_at or logged_at
        head.last_at = logged_at
        frame = logged.frame
        # By position: keywords take a microsecond more.
        row = FrameRow(
            head.context_id,
            version,
            frame_id,
            logged_at,
            time_of(frame.produced_at),
            record.offset,
            record.partition,
            clean(frame.type),
            outcome,
            reason,
            _named(frame, "run_id"),
            _named(frame, "tool_call_id"),
            None if logged.source is None else clean(logged.source),
            logged.trace_id,
            None,
            head.chain,
            value,
            record.generation,
        )
        self.rows.frames.append(row)

    def _evolve(
        self, record: Record, logged: LoggedFrame, head: Head, logged_at: datetime
    ) -> tuple[str, str | None]:
        if head.parked_version is not None:
            return "parked", None
        before = head.state
        try:
            step = evolve(before, logged.frame)
            effects = () if record.partition in self._held else react(before, logged.frame, step.state)
            write_step(self.rows, head, logged.frame, step, before, logged_at)
        except Exception as error:
            raise UnfoldableError(record, error) from error
        head.state = step.state
        if step.outcome == "unknown":
            head.counters.unknown += 1
        for ordinal, effect in enumerate(effects):
            place = place_of(record)
            self.rows.outbox.append(effect_row(effect, place, ordinal, self._effects_topic(effect.effect)))
        return step.outcome, step.reason

    def _is_known(self, head: Head, logged: LoggedFrame, frame_id: UUID, value_hash: int) -> bool:
        """Whether a frame with this id was folded before. If it was the same frame, it is counted as a duplicate;
        otherwise this one becomes a dead letter.

        An id that was derived from an offset comes again only with a copy, of a record that was forwarded twice, or
        that the log had lost.
        """
        if self._stored_ids is None:
            known = head.recent.get(frame_id)
            if known is None:
                return False
            if known != value_hash:
                raise PossibleDuplicateError
            is_repeated = True
        else:
            stored = self._stored_ids.get((head.context_id, frame_id))
            if stored is None:
                return False
            is_repeated = is_duplicate(logged.record.value or b"", stored)
        if is_repeated:
            head.counters.duplicates += 1
            if head.version:
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
        self.rows.outbox.append(forward_row(record, logged))

    def _dead_letter(self, record: Record, code: str, error: str, context_id: str | None = None) -> None:
        self.rows.rejections.append(
            DeadLetter(record, code, clean(error), context_id or readable_key(record))
        )
        letter = dead_letter_row(record, code, error, self._dead_letters)
        # Uncompressed it may be too large for any topic. `rejected_frames` has it in any case.
        if size_of(letter) <= MAX_DEAD_LETTER_BYTES:
            self.rows.outbox.append(letter)


class UnfoldableError(RefusedError):
    """A frame made the fold raise, which is a bug of ours: its conversation is parked, the others continue.

    Remedy: Report the bug with the frame. With a release that has it mended, fold the conversation with
    `frameledger unpark`.
    """

    def __init__(self, record: Record, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.record = record


class PossibleDuplicateError(RefusedError):
    """A recent id came again with other bytes: only the stored payload tells whether it is the same frame.

    Remedy: None is needed: the projector folds the batch again with `stored_ids`.
    """


def is_at_home(record: Record, partitions: int) -> bool:
    """Whether a record lies in the partition of the conversation that its key names."""
    return home_partition(record.key or b"", partitions) == record.partition


def _logged_at(record: Record, head: Head) -> datetime:
    """Returns the broker's time, but never one before that of the previous frame. A rebuild gives the same."""
    logged_at = at(record.timestamp_ms or 0)
    return logged_at if head.last_at is None or logged_at >= head.last_at else head.last_at


def _named(frame: AnyFrame, name: str) -> str | None:
    """Returns the id in this field; for a type without the field an extra of that name, if it is an id."""
    if name in frame.id_fields:
        id_: str | None = getattr(frame, name)
        return id_
    # The attribute behind `model_extra`: `getattr` of a missing attribute costs a microsecond.
    value = (frame.__pydantic_extra__ or {}).get(name)
    return value if isinstance(value, str) and _is_id(value) else None


def _is_id(text: str) -> bool:
    return 0 < len(text.encode()) <= MAX_ID_BYTES and "\x00" not in text

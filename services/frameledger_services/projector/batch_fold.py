"""Folding a batch: records and heads in, rows out. Pure but for the heads, which it moves on in place.

What a record can become: a frame of its conversation (applied, ignored, unknown); a copy to be forwarded, if it lies in
a partition that is not its conversation's; a repetition, which is counted; or something set aside, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import UUID

import orjson

from frameledger.decoding import MAX_ID_BYTES
from frameledger.effects import CallFunction, Cancel, Effect, RunInference, to_wire
from frameledger.errors import RefusedError
from frameledger.evolve import evolve
from frameledger.frames import AnyFrame
from frameledger.partition import partition_for
from frameledger.react import react
from frameledger.record import DecodeError, LoggedFrame, Place, Record, forward, place_of, read
from frameledger_services.event_log.topics import MAX_DEAD_LETTER_BYTES, TopicNames
from frameledger_services.projector.duplicates import is_duplicate
from frameledger_services.projector.head import Head, chained
from frameledger_services.projector.rows import DeadLetter, FrameRow, OutboxRow, Rows, at, clean, time_of
from frameledger_services.projector.step_rows import write_step
from frameledger_services.store.frame_ids import frame_uuid


class BatchFold:
    """The rows of one batch in the making.

    `heads` has every conversation of the batch that is at home in its partition; `stored_ids` says which frame ids the
    database has already, with their payloads: None on the usual path, where a unique violation finds out. In the
    partitions that are `held` frames are folded, and nothing follows from them.
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
        # With those that this batch takes.
        self._stored_ids = None if stored_ids is None else dict(stored_ids)
        self._held = held

    def fold(self, decoded: Iterable[DecodedRecord]) -> Rows:
        """Take in records in the order of their partition. Raises `UnfoldableError` for a frame that makes the fold
        raise, and `PossibleDuplicateError`; the heads are of no use then."""
        for record, logged in decoded:
            try:
                if isinstance(logged, DecodeError | Unstorable):
                    self._set_aside(record, logged.reason, logged.detail)
                elif is_at_home(record, self._partitions):
                    self._take(record, logged)
                else:
                    self._forward(record, logged)
            except (UnfoldableError, PossibleDuplicateError):
                raise
            except Exception as error:
                raise UnfoldableError(record, error) from error
        return self.rows

    def _take(self, record: Record, logged: LoggedFrame) -> None:
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
        outcome, reason = self._fold(record, logged, head, logged_at)
        version = head.version + 1
        head.chain = chained(head.chain, version, logged.source, value)
        head.version = version
        head.started_at = head.started_at or logged_at
        head.last_at = logged_at
        frame = logged.frame
        # By position: with their names it takes a microsecond more.
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

    def _fold(
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
        """Whether the frame's id was folded before: the same frame is counted, another one set aside.

        An id that was derived from a place comes again only with a copy: of a record that was forwarded twice, or that
        the log had lost.
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
            self._set_aside(
                logged.record,
                "id_reused",
                f"the id {logged.frame_id} belongs to another frame of this conversation; give each frame its own id",
                logged.context_id,
            )
        return True

    def _forward(self, record: Record, logged: LoggedFrame) -> None:
        """Copy a record to the partition that its conversation has: clients with another partitioner work too."""
        copy = forward(record)
        self.rows.outbox.append(
            OutboxRow(
                topic=record.topic,
                partition=record.partition,
                generation=record.generation,
                offset=record.offset,
                ordinal=0,
                kind="forward",
                to_topic=record.topic,
                context_id=logged.context_id,
                key=copy.key,
                value=copy.value,
                headers=tuple(copy.headers),
            )
        )

    def _set_aside(self, record: Record, code: str, error: str, context_id: str | None = None) -> None:
        self.rows.rejections.append(
            DeadLetter(record, code, clean(error), context_id or _readable_key(record))
        )
        letter = _dead_letter(record, code, error, self._dead_letters)
        # Compressed it was small enough for the log. What no topic takes need not be tried: `rejected_frames` has it.
        if _size(letter) <= MAX_DEAD_LETTER_BYTES:
            self.rows.outbox.append(letter)


class UnfoldableError(RefusedError):
    """A frame made the fold raise, which is a bug of ours: its conversation is parked, the others go on.

    Remedy: Report the bug with the frame. With a release that has it mended, fold the conversation with
    `frameledger unpark`.
    """

    def __init__(self, record: Record, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.record = record


class PossibleDuplicateError(RefusedError):
    """An id came again with other bytes than a frame has that is in memory, and only the stored payload says whether
    it is that frame.

    Remedy: None is needed: the projector folds the batch again with `stored_ids`.
    """


@dataclass(frozen=True, slots=True)
class Unstorable:
    """A record cannot be stored as a frame in any form, not even unfolded."""

    reason: str
    detail: str


DecodedRecord = tuple[Record, LoggedFrame | DecodeError | Unstorable]


FetchedRecord = tuple[Record, LoggedFrame | DecodeError | Unstorable | None]
"""The same, or a record that was not looked at yet."""


def decode_record(record: Record) -> DecodedRecord:
    """A record with the frame that it carries, or with what is wrong with it."""
    try:
        return record, read(record)
    except DecodeError as error:
        return record, error
    except Exception as error:
        # A bug of ours, and no reason to read nothing of its partition any more.
        return record, Unstorable("refused", f"it cannot be decoded: {type(error).__name__}: {error}")


def is_at_home(record: Record, partitions: int) -> bool:
    """Whether a record lies in the partition of the conversation that its key names."""
    return _home(record.key or b"", partitions) == record.partition


def effect_topics(names: TopicNames) -> dict[str, str]:
    """Where each kind of effect is published."""
    return {
        RunInference.effect: names.inference,
        CallFunction.effect: names.function_calls,
        Cancel.effect: names.cancellations,
    }


def effect_row(effect: Effect, cause: Place, ordinal: int, to_topic: str) -> OutboxRow:
    """An effect as it is published: in the place of the record that caused it, as the `ordinal`-th of its effects."""
    return OutboxRow(
        topic=cause.topic,
        partition=cause.partition,
        generation=cause.generation,
        offset=cause.offset,
        ordinal=ordinal,
        kind="effect",
        to_topic=to_topic,
        context_id=effect.context_id,
        key=effect.context_id.encode(),
        value=orjson.dumps(to_wire(effect)),
        headers=(("ce_id", effect.id.encode()), ("ce_type", effect.effect.encode())),
    )


def _dead_letter(record: Record, code: str, error: str, to_topic: str) -> OutboxRow:
    """A record as it was received, and in headers where it lies and what is wrong with it."""
    place = (
        ("fl_topic", record.topic),
        ("fl_generation", record.generation),
        ("fl_partition", record.partition),
        ("fl_offset", record.offset),
    )
    return OutboxRow(
        topic=record.topic,
        partition=record.partition,
        generation=record.generation,
        offset=record.offset,
        ordinal=0,
        kind="dead_letter",
        to_topic=to_topic,
        context_id=_readable_key(record),
        key=record.key,
        value=record.value,
        headers=(
            *record.headers,
            *((name, str(part).encode()) for name, part in place),
            ("fl_code", code.encode()),
            ("fl_error", error.encode("utf-8", "replace")),
        ),
    )


def _size(row: OutboxRow) -> int:
    headers = sum(len(name.encode("utf-8", "replace")) + len(value or b"") for name, value in row.headers)
    return len(row.key or b"") + len(row.value or b"") + headers


_home = lru_cache(maxsize=8_192)(partition_for)
"""Computing it for every record would be a sixth of what the fold of a batch costs."""


def _logged_at(record: Record, head: Head) -> datetime:
    """The broker's time, never before that of the frame before: it survives a rebuild."""
    logged_at = at(record.timestamp_ms or 0)
    return logged_at if head.last_at is None or logged_at >= head.last_at else head.last_at


def _named(frame: AnyFrame, name: str) -> str | None:
    """The id that a frame has under this name. In a frame whose type has no such field it may be anything."""
    if name in frame.id_fields:
        id_: str | None = getattr(frame, name)
        return id_
    # The attribute behind `model_extra`; a missing attribute, asked for as one, costs a microsecond.
    value = (frame.__pydantic_extra__ or {}).get(name)
    return value if isinstance(value, str) and _is_id(value) else None


def _is_id(text: str) -> bool:
    return 0 < len(text.encode()) <= MAX_ID_BYTES and "\x00" not in text


def _readable_key(record: Record) -> str | None:
    try:
        key = (record.key or b"").decode()
    except UnicodeDecodeError:
        return None
    return key if key and "\x00" not in key else None

"""Folding a batch: records and heads in, rows out. Pure but for the heads, which it moves on in place.

What a record can become: a frame of its conversation (applied, ignored, unknown); a copy to be forwarded, if it lies in
a partition that is not its conversation's; a repetition, which is counted; or something set aside, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import UUID, uuid5

import orjson

from frameledger.decoding import MAX_ID_BYTES
from frameledger.effects import CallFunction, Cancel, Effect, RunInference, to_wire
from frameledger.evolve import evolve
from frameledger.frames import AnyFrame
from frameledger.partition import partition_for
from frameledger.react import react
from frameledger.record import DecodeError, LoggedFrame, Place, Record, forward, place_of, read
from frameledger_services.event_log.topics import Topics
from frameledger_services.projector.head import Head, chained
from frameledger_services.projector.rows import FrameRow, OutboxRow, Rejection, Rows, at, clean, time_of
from frameledger_services.projector.step_rows import write_step

FRAME_IDS = UUID("2b3f6a52-0c1e-5f7b-9d84-6a1f2e3c4b5d")
"""The namespace of ids that are no uuids. It never changes: stored ids came from it."""


class Folding:
    """The rows of one batch in the making.

    `heads` has every conversation of the batch; `stored_ids` says which frame ids the database has already, with
    their payloads: empty on the usual path, where a unique violation finds out.
    """

    def __init__(
        self,
        heads: Mapping[str, Head],
        partitions: int,
        effects_topic: Callable[[str], str],
        dead_letters: str,
        stored_ids: Mapping[tuple[str, UUID], bytes],
    ) -> None:
        self.rows = Rows()
        self.touched: dict[str, Head] = {}
        self._heads = heads
        self._partitions = partitions
        self._effects_topic = effects_topic
        self._dead_letters = dead_letters
        self._stored_ids = stored_ids

    def fold(self, decoded: Iterable[Decoded]) -> Rows:
        """Take in records in the order of their partition. Raises `UnfoldableError` for a frame that makes the fold
        raise; the heads are of no use then."""
        for record, logged in decoded:
            if isinstance(logged, DecodeError | Refusal):
                self._set_aside(record, logged.reason, logged.detail)
            elif _home(record.key or b"", self._partitions) != record.partition:
                self._forward(record, logged)
            else:
                self._take(record, logged)
        return self.rows

    def _take(self, record: Record, logged: LoggedFrame) -> None:
        head = self._heads[logged.context_id]
        value = record.value or b""
        frame_id = frame_uuid(logged.frame_id)
        value_hash = hash(value)
        if self._is_known(head, logged, frame_id, value_hash):
            return
        head.remember(frame_id, value_hash)
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
            effects = react(before, logged.frame, step.state)
            write_step(self.rows, head, logged.frame, step, before, logged_at)
        except Exception as error:
            raise UnfoldableError(record, head.context_id, error) from error
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
        known = head.recent.get(frame_id)
        if known is None:
            stored = self._stored_ids.get((head.context_id, frame_id))
            if stored is None:
                return False
            known = hash(stored)
        if known == value_hash:
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
            Rejection(record, code, clean(error), context_id or _readable_key(record))
        )
        place = (
            ("fl_topic", record.topic),
            ("fl_generation", record.generation),
            ("fl_partition", record.partition),
            ("fl_offset", record.offset),
        )
        self.rows.outbox.append(
            OutboxRow(
                topic=record.topic,
                partition=record.partition,
                generation=record.generation,
                offset=record.offset,
                ordinal=0,
                kind="dead_letter",
                to_topic=self._dead_letters,
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
        )


class UnfoldableError(Exception):
    """A frame made the fold raise, which is a bug of ours: its conversation is parked, the others go on."""

    def __init__(self, record: Record, context_id: str, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.record = record
        self.context_id = context_id


@dataclass(frozen=True, slots=True)
class Refusal:
    """The database does not take a frame in any form, not even unfolded."""

    reason: str
    detail: str


Decoded = tuple[Record, LoggedFrame | DecodeError | Refusal]


Found = tuple[Record, LoggedFrame | DecodeError | Refusal | None]
"""The same, or a record that was not looked at yet."""


def decoded(record: Record) -> Decoded:
    """A record with the frame that it carries, or with what is wrong with it."""
    try:
        return record, read(record)
    except DecodeError as error:
        return record, error


def frame_uuid(frame_id: str) -> UUID:
    """The id under which a frame is stored: its own if that is a uuid, else one made from it."""
    try:
        return UUID(frame_id)
    except ValueError:
        return uuid5(FRAME_IDS, frame_id)


def effect_topics(names: Topics) -> dict[str, str]:
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

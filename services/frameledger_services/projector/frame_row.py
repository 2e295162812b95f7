"""The row of a frame in the table `frames`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from frameledger.decoding import MAX_ID_BYTES
from frameledger.frames import AnyFrame
from frameledger.record import LoggedFrame, Record
from frameledger_services.projector.head import Head
from frameledger_services.projector.row_values import at, clean, time_of
from frameledger_services.projector.rows import FrameRow
from frameledger_services.store.frame_ids import cause_uuid


def frame_row(
    record: Record,
    logged: LoggedFrame,
    head: Head,
    frame_id: UUID,
    logged_at: datetime,
    outcome: str,
    reason: str | None,
) -> FrameRow:
    """Returns the row of a folded frame. `head` has the frame's version and its link of the chain."""
    frame = logged.frame
    # By position: keywords take a microsecond more.
    return FrameRow(
        head.context_id,
        head.version,
        frame_id,
        logged_at,
        time_of(frame.produced_at),
        record.offset,
        record.partition,
        clean(frame.type),
        outcome,
        reason,
        named_id(frame, "run_id"),
        named_id(frame, "tool_call_id"),
        None if logged.source is None else clean(logged.source),
        logged.trace_id,
        head.chain,
        record.value or b"",
        record.generation,
        None if logged.causation_id is None else cause_uuid(logged.causation_id),
    )


def logged_at_of(record: Record, head: Head) -> datetime:
    """Returns the broker's time, or that of the previous frame if it is later. A rebuild gives the same result."""
    logged_at = at(record.timestamp_ms or 0)
    return logged_at if head.last_at is None or logged_at >= head.last_at else head.last_at


def named_id(frame: AnyFrame, name: str) -> str | None:
    """Returns the id in this field. For a type without the field, an extra field of that name counts if it is an id."""
    if name in frame.id_fields:
        id_: str | None = getattr(frame, name)
        return id_
    # The attribute behind `model_extra`: `getattr` of a missing attribute costs a microsecond.
    value = (frame.__pydantic_extra__ or {}).get(name)
    return value if isinstance(value, str) and _is_id(value) else None


def _is_id(text: str) -> bool:
    return 0 < len(text.encode()) <= MAX_ID_BYTES and "\x00" not in text

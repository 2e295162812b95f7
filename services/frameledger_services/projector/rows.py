"""The rows that a batch writes, by table: collected during the fold and written after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from frameledger.frames import LLMContextEraseFrame
from frameledger.record import Record
from frameledger_services.projector.row_values import at, clean, clean_or_none
from frameledger_services.store.erasures import Erasure
from frameledger_services.store.outbox import OutboxRow

Key = tuple[Any, ...]


class FrameRow(NamedTuple):
    """A row of `frames`: a tuple, which is written without conversion."""

    context_id: str
    version: int
    frame_id: UUID
    logged_at: datetime
    produced_at: datetime | None
    offset: int
    partition: int
    type: str
    outcome: str
    reason: str | None
    run_id: str | None
    tool_call_id: str | None
    source: str | None
    trace_id: str | None
    chain: bytes
    payload: bytes
    generation: int
    causation_id: UUID | None


@dataclass(slots=True)
class MessageRow:
    """A row of `messages`. With `inherits` its `run_id` is that of the row it replaces, which was written earlier."""

    context_id: str
    era: int
    position: int
    valid_from: int
    valid_to: int
    role: str | None
    text: str | None
    run_id: str | None
    message: bytes
    said_at: datetime
    inherits: bool = False


@dataclass(slots=True)
class DeadLetterRow:
    """A record that cannot be folded, and why: a row of `rejected_frames`."""

    record: Record
    code: str
    error: str
    context_id: str | None = None

    @property
    def logged_at(self) -> datetime | None:
        return None if self.record.timestamp_ms is None else at(self.record.timestamp_ms)


@dataclass(slots=True)
class Rows:
    """All rows that one transaction writes, in the order of the fold."""

    frames: list[FrameRow] = field(default_factory=list)
    written: list[MessageRow] = field(default_factory=list)
    ended: list[tuple[str, int, int, int]] = field(default_factory=list)
    """Messages of earlier batches that are no longer current: context, era, position, version."""

    eras: list[tuple[str, int, int]] = field(default_factory=list)
    settings: dict[tuple[str, str, int], bytes] = field(default_factory=dict)
    new_runs: dict[Key, dict[str, Any]] = field(default_factory=dict)
    run_patches: dict[Key, dict[str, Any]] = field(default_factory=dict)
    new_calls: dict[Key, dict[str, Any]] = field(default_factory=dict)
    call_patches: dict[Key, dict[str, Any]] = field(default_factory=dict)
    settled: list[tuple[str, str]] = field(default_factory=list)
    """Function and final status of each settled call, for the metrics."""

    outbox: list[OutboxRow] = field(default_factory=list)
    rejections: list[DeadLetterRow] = field(default_factory=list)
    late: dict[tuple[str, int], int] = field(default_factory=dict)
    """Number of frames of erased lives that were left out, by context and version of the erasure."""

    erasures: dict[str, Erasure] = field(default_factory=dict)
    """The erasures to perform once these rows are written, by context; they also delete some of these rows. Rows of the
    next life are in another `Rows`."""

    _newest: dict[tuple[str, int, int], MessageRow] = field(default_factory=dict)

    def write_message(self, row: MessageRow) -> None:
        self.written.append(row)
        self._newest[row.context_id, row.era, row.position] = row

    def end_message(self, context_id: str, era: int, position: int, version: int) -> MessageRow | None:
        """End the message at a position. Returns its row if this batch wrote it."""
        row = self._newest.pop((context_id, era, position), None)
        if row is None:
            self.ended.append((context_id, era, position, version))
        else:
            row.valid_to = version
        return row

    def messages(self) -> list[MessageRow]:
        """Returns the rows to insert, without those that were written and ended by the same frame."""
        return [row for row in self.written if row.valid_from < row.valid_to]

    def run(self, context_id: str, run_id: str) -> dict[str, Any]:
        """Returns the changed columns of a run, to be updated in place."""
        key = (context_id, run_id)
        new = self.new_runs.get(key)
        return new if new is not None else self.run_patches.setdefault(key, {})

    def call(self, context_id: str, requested_version: int, ordinal: int) -> dict[str, Any]:
        """Returns the changed columns of a call, to be updated in place."""
        key = (context_id, requested_version, ordinal)
        new = self.new_calls.get(key)
        return new if new is not None else self.call_patches.setdefault(key, {})


def erasure_of(
    context_id: str, version: int, frame: LLMContextEraseFrame, partition: int, offset: int
) -> Erasure:
    """Returns the erasure by a frame that is stored at this version, from a record at this place."""
    requested_by = clean_or_none(frame.requested_by)
    return Erasure(context_id, version, clean(frame.why), requested_by, partition, offset)

"""Whether a partition's log is still the one that was stored, and if not, what became of it and where to go on.

Nothing here asks anybody. Kafka promises that a log only grows and loses its oldest records. A power cut takes the
newest, which were not on the disk yet; a topic can be deleted and made again; and records may expire while nobody
stores them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Literal

from frameledger.record import Record
from frameledger_services.projector.log_check import LogState, symptom
from frameledger_services.store.projections import StoredPosition
from frameledger_services.store.recovery import Receipt, StoredFrame

Happened = Literal["fine", "lost_tail", "expired", "another_log"]
"""What became of it. Stored names: they never change."""

NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a partition, and where it is read next."""

    stored: StoredPosition
    log: LogState
    happened: Happened
    begins_at: int
    missing: int = 0
    """Offsets that expired before they were stored."""


def diagnose(
    stored: StoredPosition, log: LogState, *, is_same_topic: bool | None, agreed: int | None
) -> Finding:
    """What became of a partition.

    `is_same_topic` is None when the broker gives topics no ids. `agreed` is the offset up to which log and tables
    are of one mind, None if they are nowhere; nobody asks for it while the sign is fine or expired and the topic the
    same.
    """
    if is_same_topic is False:
        if stored.next_offset == 0:
            return Finding(stored, log, "fine", log.first)
        if agreed == stored.next_offset:
            return Finding(stored, log, "fine", agreed)
        return Finding(stored, log, "another_log", log.first if agreed is None else agreed)
    match symptom(stored, log):
        case "fine":
            return Finding(stored, log, "fine", stored.next_offset)
        case "expired":
            return Finding(stored, log, "expired", log.first, log.first - stored.next_offset)
    if agreed is None and is_same_topic is None and log.first < log.end:
        return Finding(stored, log, "another_log", log.first)
    # Of the same topic all may be lost, and others written since.
    return Finding(stored, log, "lost_tail", log.first if agreed is None else agreed)


async def last_common_offset(
    kept: AsyncIterator[StoredFrame], records: AsyncIterator[Record], read_until: datetime | None
) -> int | None:
    """Up to which offset the log has what was read; both are given in the order of their offsets. None for nowhere.

    `read_until` is when the last record was logged that was read, if it is a question of one topic only: then times
    tell a record that was there from a later one like it, and judge those of which no frame is stored. Without it
    the times are those of a copy.
    """
    reached = None
    next_kept = await anext(kept, None)
    async for record in records:
        if next_kept is not None and next_kept.offset <= record.offset:
            if not _is(next_kept, record, read_until is not None):
                return reached
            next_kept = await anext(kept, None)
        elif read_until is None or _time(record) > _milliseconds(read_until):
            continue  # a later one that agrees vouches for it
        reached = record.offset + 1
    return reached


class ByPartition:
    """The kept frames of many partitions, which come from one statement, handed out partition by partition."""

    def __init__(self, rows: AsyncIterator[StoredFrame]) -> None:
        """`rows` are in the order of their partitions."""
        self._rows = rows
        self._next: StoredFrame | None = None

    async def of(self, partition: int) -> AsyncGenerator[StoredFrame, None]:
        """Those of a partition. It is asked in the order of partitions; what nobody took of one before is passed
        over."""
        row, self._next = self._next, None
        if row is None:
            row = await anext(self._rows, None)
        while row is not None and row.partition <= partition:
            if row.partition == partition:
                yield row
            row = await anext(self._rows, None)
        self._next = row


def spans(chain: Sequence[Receipt], generation: int) -> list[tuple[int, int]]:
    """Of which generations a partition's log has records where they were stored: each with the offset below which."""
    below = NO_END
    found = [(generation, below)]
    for began in _backwards(chain, generation):
        if began.happened == "another_log":
            break
        # A later generation may have begun before an earlier one did: then its records lie there.
        below = min(below, began.begins_at)
        found.append((began.generation - 1, below))
    return found


def gaps(chain: Sequence[Receipt], generation: int, begins_at: int) -> list[tuple[int, int]]:
    """Of which generations, up to this one, the log lost frames when it lost what lies from `begins_at` on: each with
    the offset from which on.

    Copies that were put back earlier count among them if some may have been lost again: one too many does no harm.
    """
    since = begins_at
    found = [(generation, since)]
    for began in _backwards(chain, generation):
        if began.happened == "another_log":
            break
        # What was put back when it began has frames of all generations before it.
        if began.happened == "lost_tail" and not _stands(began, begins_at):
            since = min(since, began.begins_at)
        found.append((began.generation - 1, since))
    return found


def _backwards(chain: Sequence[Receipt], generation: int) -> list[Receipt]:
    return sorted(
        (one for one in chain if one.generation <= generation), key=lambda one: one.generation, reverse=True
    )


def _stands(began: Receipt, begins_at: int) -> bool:
    """Whether what was put back at the beginning of a generation is still on the log below this offset."""
    return began.is_put_back and (began.put_back_through is None or began.put_back_through < begins_at)


def _is(kept: StoredFrame, record: Record, times_count: bool) -> bool:
    return (
        kept.offset == record.offset
        and record.key == kept.context_id.encode()
        and sha256(record.value or b"").digest() == kept.sha256
        # A frame's time is the broker's, but never before that of the frame before it.
        and not (times_count and _time(record) > _milliseconds(kept.logged_at))
    )


def _time(record: Record) -> int:
    return record.timestamp_ms or 0


def _milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1_000)

"""Diagnosis of a partition whose log no longer matches the tables: what happened to it, and where to continue. No IO.

Kafka promises that a log only grows at its end and expires at its beginning. But a power failure loses the newest
records, which were not on disk yet; a topic can be deleted and recreated; and records may expire before they are
stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Literal

from frameledger.headers import milliseconds
from frameledger.record import Record
from frameledger_services.projector.log_check import LogState, symptom
from frameledger_services.store.lost_frames import FrameDigest
from frameledger_services.store.projections import StoredPosition
from frameledger_services.store.recovery import RecoveryReceipt

Happened = Literal["fine", "lost_tail", "expired", "another_log"]
"""What happened to a log. The names are stored in `recoveries` and never change."""

NO_END = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PartitionFinding:
    """What happened to a partition, and its next offset (`begins_at`, as in `recoveries`)."""

    stored: StoredPosition
    log: LogState
    happened: Happened
    begins_at: int
    missing: int = 0
    """Number of offsets that expired before they were stored."""


def diagnose(
    stored: StoredPosition, log: LogState, *, is_same_topic: bool | None, common: int | None
) -> PartitionFinding:
    """Returns what happened to a partition.

    `is_same_topic` is None if the broker has no topic ids. `common` is the last common offset of log and tables, or
    None if they have nothing in common; it is not used if the symptom is fine or expired and the topic is the same.
    """
    if is_same_topic is False:
        if stored.next_offset == 0:
            return PartitionFinding(stored, log, "fine", log.first)
        if common == stored.next_offset:
            return PartitionFinding(stored, log, "fine", common)
        return PartitionFinding(stored, log, "another_log", log.first if common is None else common)
    match symptom(stored, log):
        case "fine":
            return PartitionFinding(stored, log, "fine", stored.next_offset)
        case "expired":
            return PartitionFinding(stored, log, "expired", log.first, log.first - stored.next_offset)
    if common is None and is_same_topic is None and log.first < log.end:
        return PartitionFinding(stored, log, "another_log", log.first)
    # Even if nothing is in common: the topic may have lost all its records and received others since.
    return PartitionFinding(stored, log, "lost_tail", log.first if common is None else common)


async def last_common_offset(
    stored_frames: AsyncIterator[FrameDigest],
    records: AsyncIterator[Record],
    read_until: datetime | None,
    first_offset: Callable[[], Awaitable[int]],
) -> int | None:
    """Returns the last offset at which the log has the stored record, or None if they have nothing in common. Both are
    given in the order of their offsets.

    `read_until` is the time of the last stored record if the topic is the same: a record with a later time is not the
    stored one, even if its content is equal. It is None if the topic was recreated, because its records are copies with
    times of their own. `first_offset` returns the log's current first offset: the records of stored frames below it
    have expired, perhaps since the comparison began.
    """
    reached = None
    next_stored = await anext(stored_frames, None)
    async for record in records:
        if next_stored is not None and next_stored.offset < record.offset:
            first = await first_offset()
            while next_stored is not None and next_stored.offset < first:
                next_stored = await anext(stored_frames, None)
        if next_stored is not None and next_stored.offset <= record.offset:
            if not _is_same_record(next_stored, record, read_until is not None):
                return reached
            next_stored = await anext(stored_frames, None)
        elif read_until is None or _time(record) > milliseconds(read_until):
            continue  # it is common only if a later record matches
        reached = record.offset + 1
    return reached


def spans(chain: Sequence[RecoveryReceipt], generation: int) -> list[tuple[int, int]]:
    """Returns the generations whose records are on the log at the offsets at which they were stored, the newest first,
    each with its end offset."""
    below = NO_END
    ranges = [(generation, below)]
    for began in _backwards(chain, generation):
        if began.happened == "another_log":
            break
        # A later generation may begin at a lower offset than an earlier one; from there on, the records are its own.
        below = min(below, began.begins_at)
        ranges.append((began.generation - 1, below))
    return ranges


def generation_at(ranges: Iterable[tuple[int, int]], offset: int) -> int:
    """Returns the generation in which the record at an offset was stored. `ranges` is the result of `spans`."""
    return min(number for number, below in ranges if offset < below)


def gaps(chain: Sequence[RecoveryReceipt], generation: int, begins_at: int) -> list[tuple[int, int]]:
    """Returns the gaps of a log that lost its records from `begins_at` on: generations up to this one, each with the
    offset from which its frames are missing.

    They include frames that were republished earlier, because those copies may be lost too; an unnecessary copy does no
    harm.
    """
    since = begins_at
    ranges = [(generation, since)]
    for began in _backwards(chain, generation):
        if began.happened == "another_log":
            break
        # The copies that were republished at its beginning are of frames of all generations before it.
        if began.happened == "lost_tail" and not _copies_are_below(began, begins_at):
            since = min(since, began.begins_at)
        ranges.append((began.generation - 1, since))
    return ranges


def _backwards(chain: Sequence[RecoveryReceipt], generation: int) -> list[RecoveryReceipt]:
    return sorted(
        (one for one in chain if one.generation <= generation), key=lambda one: one.generation, reverse=True
    )


def _copies_are_below(began: RecoveryReceipt, begins_at: int) -> bool:
    """Returns whether every copy that was republished at the beginning of a generation is below this offset."""
    return began.is_put_back and (began.put_back_through is None or began.put_back_through < begins_at)


def _is_same_record(stored: FrameDigest, record: Record, times_count: bool) -> bool:
    return (
        stored.offset == record.offset
        and record.key == stored.context_id.encode()
        and sha256(record.value or b"").digest() == stored.sha256
        # A frame's time is the broker's, but never earlier than that of the frame before it.
        and not (times_count and _time(record) > milliseconds(stored.logged_at))
    )


def _time(record: Record) -> int:
    return record.timestamp_ms or 0

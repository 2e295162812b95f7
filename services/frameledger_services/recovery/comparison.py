"""Compares the log of each changed partition with its stored frames, by reading both.

One statement returns the stored frames of all partitions, and scans the table from the lowest of the offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from frameledger_services.database_types import Connection
from frameledger_services.event_log.log_probe import LogProbe
from frameledger_services.event_log.reader import partition_records
from frameledger_services.projector.log_check import LogState
from frameledger_services.recovery.by_partition import ByPartition
from frameledger_services.recovery.diagnosis import NO_END, last_common_offset
from frameledger_services.settings import Settings
from frameledger_services.store import lost_frames
from frameledger_services.store.lost_frames import OffsetRange
from frameledger_services.store.projections import StoredPosition

LOOK_BACK = 100_000
"""Number of offsets before the end that are compared first; if nothing in them is common, all offsets are compared."""


@dataclass(frozen=True, slots=True)
class ChangedPartition:
    """A partition whose log changed, and the offsets of the frames of its generations (`diagnosis.spans`)."""

    stored: StoredPosition
    log: LogState
    generations: Sequence[tuple[int, int]]

    @property
    def partition(self) -> int:
        return self.stored.partition

    @property
    def end(self) -> int:
        """The offset after the last one that can be common."""
        return min(self.log.end, self.stored.next_offset)


async def last_common_offsets(
    settings: Settings,
    connection: Connection,
    log: LogProbe,
    topic: str,
    changed: Sequence[ChangedPartition],
    is_same_topic: bool | None,
) -> dict[int, int]:
    """Returns the last common offset of log and tables by partition, without partitions that have nothing in common.

    `changed` is in the order of the partitions. All are compared near their ends, and those without success from their
    beginnings, so the table is scanned at most twice. Raises `BrokerError`.
    """
    reached: dict[int, int] = {}
    left = changed
    for look_back in (LOOK_BACK, NO_END):
        parts = [(one, first) for one in left if (first := max(one.log.first, one.end - look_back)) < one.end]
        if parts:
            reached |= await _compared(settings, connection, log, topic, parts, is_same_topic)
        left = [one for one, first in parts if one.partition not in reached and first > one.log.first]
    return reached


async def _compared(
    settings: Settings,
    connection: Connection,
    log: LogProbe,
    topic: str,
    parts: Sequence[tuple[ChangedPartition, int]],
    is_same_topic: bool | None,
) -> dict[int, int]:
    """Returns the last common offsets, for each partition from the given offset on."""
    spans = [
        OffsetRange(one.partition, generation, first, min(one.end, below))
        for one, first in parts
        for generation, below in one.generations
    ]
    reached = {}
    async with connection.transaction(), aclosing(lost_frames.stored_frames(connection, spans)) as rows:
        in_turn = ByPartition(rows)
        for changed, first in parts:
            read_until = None if is_same_topic is False else changed.stored.last_logged_at
            async with (
                aclosing(in_turn.of(changed.partition)) as stored_frames,
                aclosing(
                    partition_records(settings, topic, changed.partition, first, changed.end)
                ) as records,
            ):
                first_offset = partial(_first_offset, log, changed.partition)
                upto = await last_common_offset(stored_frames, records, read_until, first_offset)
            if upto is not None:
                reached[changed.partition] = upto
    return reached


async def _first_offset(log: LogProbe, partition: int) -> int:
    first, _ = await log.offsets(partition)
    return first

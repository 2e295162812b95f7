"""Comparing: up to which offset each changed partition's log has what is stored of it, by reading both.

The stored frames of all partitions come from one statement, which reads the table from the lowest offset on that it is
about: what lies there of other partitions too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from frameledger.record import Place
from frameledger_services.event_log.reader import records_between
from frameledger_services.projector.log_check import LogState
from frameledger_services.recovery.diagnosis import NO_END, ByPartition, last_common_offset
from frameledger_services.settings import Settings
from frameledger_services.store import recovery
from frameledger_services.store.projections import StoredPosition
from frameledger_services.store.recovery import Span

Connection = AsyncConnection[Any]

LOOK_BACK = 100_000
"""Offsets before the end in which the place is looked for where log and tables part; all, if it is not there."""


@dataclass(frozen=True, slots=True)
class ChangedPartition:
    """A partition that changed: what is stored of it, what the log has, and where the frames of which generation lay
    (`diagnosis.spans`)."""

    stored: StoredPosition
    log: LogState
    generations: Sequence[tuple[int, int]]

    @property
    def partition(self) -> int:
        return self.stored.partition

    @property
    def end(self) -> int:
        """Behind what both have."""
        return min(self.log.end, self.stored.next_offset)


async def last_common_offsets(
    settings: Settings,
    connection: Connection,
    topic: str,
    changed: Sequence[ChangedPartition],
    is_same_topic: bool | None,
) -> dict[int, int]:
    """Up to which offset log and tables are of one mind, by partition; one that is missing there agrees nowhere.

    `changed` is in the order of the partitions. All are looked at near their ends, and from their beginnings those
    that agree nowhere there: the table is read twice at most. Raises `BrokerError`.
    """
    reached: dict[int, int] = {}
    left = changed
    for look_back in (LOOK_BACK, NO_END):
        parts = [(one, first) for one in left if (first := max(one.log.first, one.end - look_back)) < one.end]
        if parts:
            reached |= await _compared(settings, connection, topic, parts, is_same_topic)
        left = [one for one, first in parts if one.partition not in reached and first > one.log.first]
    return reached


async def _compared(
    settings: Settings,
    connection: Connection,
    topic: str,
    parts: Sequence[tuple[ChangedPartition, int]],
    is_same_topic: bool | None,
) -> dict[int, int]:
    """The same, each partition from this offset on."""
    asked = [
        Span(one.partition, generation, first, min(one.end, below))
        for one, first in parts
        for generation, below in one.generations
    ]
    reached = {}
    async with connection.transaction(), aclosing(recovery.stored_frames(connection, asked)) as rows:
        in_turn = ByPartition(rows)
        for one, first in parts:
            read_until = None if is_same_topic is False else one.stored.last_logged_at
            async with (
                aclosing(in_turn.of(one.partition)) as kept,
                aclosing(records_between(settings, Place(topic, one.partition, first), one.end)) as records,
            ):
                upto = await last_common_offset(kept, records, read_until)
            if upto is not None:
                reached[one.partition] = upto
    return reached

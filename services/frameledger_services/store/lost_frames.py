"""Stored frames by partition and offset, for a recovery: those to compare with the log, and those that it lost.

Each function runs one statement, in the caller's transaction if there is one, and none commits.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store import rows_by_version

FETCH_ROWS = 500
"""The number of rows without payloads that are fetched together if there may be millions."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Frames of a partition that the log lost: those of one generation from an offset on."""

    partition: int
    generation: int
    since: int


@dataclass(frozen=True, slots=True)
class LostFrame:
    """A stored frame that the log lost."""

    partition: int
    generation: int
    offset: int
    context_id: str
    frame_id: UUID
    source: str | None
    trace_id: str | None
    causation_id: UUID | None
    payload: bytes
    erased_at: datetime | None = None
    """When the frame that erased its conversation was logged; None for any other frame."""

    logged_at: datetime | None = None
    """When it was logged; None if its conversation was erased since its beginning, because the copy of that erasure may
    be before the copy of this frame and have a later time."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition in one of its generations: from the first one up to the end, which is excluded."""

    partition: int
    generation: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class FrameDigest:
    """A stored frame, with the columns that can be compared with a record."""

    partition: int
    offset: int
    context_id: str
    logged_at: datetime
    sha256: bytes


async def stored_frames(
    connection: Connection, spans: Sequence[OffsetRange]
) -> AsyncGenerator[FrameDigest, None]:
    """Yields the stored frames whose records are in these spans, by partition and in the order of their offsets. In the
    caller's transaction. Scans the table once, from the lowest offset of the spans."""
    async with connection.cursor(name="kept", row_factory=class_row(FrameDigest)) as cursor:
        cursor.itersize = FETCH_ROWS
        await cursor.execute(
            """
            SELECT
                frames.partition, frames."offset", frames.context_id, frames.logged_at,
                sha256(convert_to(frames.payload::text, 'UTF8')) AS sha256
            FROM frames
            INNER JOIN unnest(%s::int[], %s::int[], %s::bigint[], %s::bigint[])
                AS span (partition, generation, first, below)
                ON frames.partition = span.partition AND frames.generation = span.generation
                    AND frames."offset" >= span.first AND frames."offset" < span.below
            -- A separate condition, so that the index by offset is used.
            WHERE frames."offset" >= %s
            ORDER BY frames.partition, frames."offset"
            """,
            (
                [one.partition for one in spans],
                [one.generation for one in spans],
                [one.first for one in spans],
                [one.end for one in spans],
                min((one.first for one in spans), default=0),
            ),
        )
        async for row in cursor:
            yield row


async def count_lost(connection: Connection, lost: Sequence[LostRange]) -> dict[int, int]:
    """Returns the number of stored frames that the log lost, by partition. Scans the table once, as above."""
    if not lost:
        return {}
    cursor = await connection.execute(
        f"SELECT frames.partition, count(*) {_LOST} GROUP BY frames.partition", _lost(lost)
    )
    return dict(await cursor.fetchall())


async def lost_frames(connection: Connection, lost: Sequence[LostRange]) -> AsyncGenerator[LostFrame, None]:
    """Yields the stored frames that the log lost, of each partition in the order of their offsets. In the caller's
    transaction. Scans the table once."""
    async with connection.cursor(name="lost", row_factory=class_row(LostFrame)) as cursor:
        cursor.itersize = rows_by_version.FETCH_ROWS
        await cursor.execute(
            f"""
            SELECT
                frames.partition, frames.generation, frames."offset", frames.context_id, frames.frame_id,
                frames.source, frames.trace_id, frames.causation_id,
                convert_to(frames.payload::text, 'UTF8') AS payload, frames.erased_at,
                CASE WHEN NOT EXISTS (SELECT FROM erasures WHERE erasures.context_id = frames.context_id)
                    THEN frames.logged_at
                END AS logged_at
            {_LOST}
            ORDER BY frames.partition, frames.generation, frames."offset"
            """,
            _lost(lost),
        )
        async for row in cursor:
            yield row


# The frame that erased a conversation is in its receipt.
_LOST = """
    FROM (
        SELECT partition, generation, "offset", context_id, frame_id, source, trace_id, causation_id, payload,
            NULL AS erased_at, logged_at
        FROM frames
        UNION ALL
        SELECT partition, generation, "offset", context_id, frame_id, source, trace_id, NULL, payload,
            coalesce(logged_at, erased_at), logged_at
        FROM erasures
    ) AS frames
    INNER JOIN unnest(%s::int[], %s::int[], %s::bigint[]) AS lost (partition, generation, since)
        ON frames.partition = lost.partition AND frames.generation = lost.generation
            AND frames."offset" >= lost.since
    WHERE frames."offset" >= %s
"""


def _lost(lost: Sequence[LostRange]) -> tuple[list[int], list[int], list[int], int]:
    return (
        [one.partition for one in lost],
        [one.generation for one in lost],
        [one.since for one in lost],
        min((one.since for one in lost), default=0),
    )

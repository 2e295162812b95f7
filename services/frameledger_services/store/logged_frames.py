"""Stored frames by partition and offset, for comparing each with its record on the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.lost_frames import FETCH_ROWS, OffsetRange


@dataclass(frozen=True, slots=True)
class FrameOnLog:
    """A stored frame, with the columns that can be compared with a record."""

    context_id: str
    version: int
    partition: int
    generation: int
    offset: int
    offset_before: int | None
    """The offset of the frame before it in its conversation, if that is of the same generation."""

    logged_at: datetime
    logged_before: datetime | None
    """The time of the frame before it in its conversation, or of the erasing frame before it."""

    frame_id: UUID
    source: str | None
    trace_id: str | None
    causation_id: UUID | None
    sha256: bytes
    """The hash of the payload."""


@dataclass(frozen=True, slots=True)
class Unstored:
    """A record without a stored frame at its place, and what else the tables have about it."""

    is_stored: bool
    """Its frame is stored from another record, which it repeats."""

    is_rejected: bool
    """It is a dead letter."""

    is_erased_behind: bool
    """An erasure of its conversation is after it on the log, or at its place, or was made without a frame when it was
    already stored."""

    is_erased: bool
    """Its conversation was erased at any time."""


async def frames(
    connection: Connection, spans: Sequence[OffsetRange], context_ids: Sequence[str] | None
) -> AsyncGenerator[FrameOnLog, None]:
    """Yields the stored frames whose records are in these spans, by partition and in the order of their offsets; only
    those of some conversations, unless that is None. In the caller's transaction. Reads those frames once, or all
    frames."""
    async with connection.cursor(name="on_log", row_factory=class_row(FrameOnLog), binary=True) as cursor:
        cursor.itersize = FETCH_ROWS
        await cursor.execute(
            """
            SELECT
                stored.context_id, stored.version, stored.partition, stored.generation, stored."offset",
                stored.offset_before, stored.logged_at, stored.logged_before, stored.frame_id, stored.source,
                stored.trace_id, stored.causation_id, stored.sha256
            FROM (
                SELECT
                    context_id, version, partition, generation, "offset", logged_at, frame_id, source, trace_id,
                    causation_id, sha256(convert_to(payload::text, 'UTF8')) AS sha256,
                    coalesce(lag(logged_at) OVER by_version, (
                        SELECT max(erasures.logged_at) FROM erasures
                        WHERE erasures.context_id = frames.context_id AND erasures.version = frames.version - 1
                    )) AS logged_before,
                    CASE WHEN lag(generation) OVER by_version = generation THEN lag("offset") OVER by_version END
                        AS offset_before
                FROM frames
                WHERE %(ids)s::text[] IS NULL OR context_id = ANY (%(ids)s::text[])
                WINDOW by_version AS (PARTITION BY context_id ORDER BY version)
            ) AS stored
            INNER JOIN unnest(%(partitions)s::int[], %(generations)s::int[], %(firsts)s::bigint[], %(ends)s::bigint[])
                AS span (partition, generation, first, below)
                ON stored.partition = span.partition AND stored.generation = span.generation
                    AND stored."offset" >= span.first AND stored."offset" < span.below
            ORDER BY stored.partition, stored."offset"
            """,
            {
                "ids": None if context_ids is None else list(context_ids),
                "partitions": [one.partition for one in spans],
                "generations": [one.generation for one in spans],
                "firsts": [one.first for one in spans],
                "ends": [one.end for one in spans],
            },
        )
        async for row in cursor:
            yield row


async def unstored(
    connection: Connection, topic: str, place: OffsetRange, context_id: str | None, frame_id: UUID | None
) -> Unstored:
    """Returns what the tables have about a record without a stored frame at its place, `place.first`."""
    async with connection.cursor(row_factory=class_row(Unstored)) as cursor:
        await cursor.execute(UNSTORED, _of(place, context_id) | {"topic": topic, "frame_id": frame_id})
        [known] = await cursor.fetchall()
        return known


async def version_before(connection: Connection, place: OffsetRange, context_id: str | None) -> int:
    """Returns the newest version of a conversation that is before a place on the log; 0 for none. Reads the frames
    after that version."""
    cursor = await connection.execute(_VERSION_BEFORE, _of(place, context_id))
    [(version,)] = await cursor.fetchall()
    return int(version)


def _of(place: OffsetRange, context_id: str | None) -> dict[str, Any]:
    return {
        "partition": place.partition,
        "generation": place.generation,
        "offset": place.first,
        "id": context_id,
    }


UNSTORED = """
    SELECT
        EXISTS (
            SELECT FROM frames WHERE context_id = %(id)s AND frame_id = %(frame_id)s
            UNION ALL
            -- A frame that erased the conversation is in its receipt.
            SELECT FROM erasures WHERE context_id = %(id)s AND frame_id = %(frame_id)s
        ) AS is_stored,
        EXISTS (
            SELECT FROM rejected_frames
            WHERE topic = %(topic)s AND partition = %(partition)s AND "offset" = %(offset)s
                AND generation = %(generation)s
        ) AS is_rejected,
        EXISTS (
            SELECT FROM erasures
            WHERE context_id = %(id)s AND partition = %(partition)s
                AND (generation > %(generation)s OR generation = %(generation)s AND "offset" >= %(offset)s)
        ) OR EXISTS (
            SELECT FROM erasures, json_to_recordset(erasures.places)
                AS erased (partition int, generation int, last_offset bigint)
            WHERE erasures.context_id = %(id)s AND erased.partition = %(partition)s
                AND (
                    erased.generation > %(generation)s
                    OR erased.generation = %(generation)s AND erased.last_offset >= %(offset)s
                )
        ) AS is_erased_behind,
        EXISTS (SELECT FROM erasures WHERE context_id = %(id)s) AS is_erased
"""

_VERSION_BEFORE = """
    SELECT coalesce(max(version), 0) FROM frames
    WHERE context_id = %(id)s AND partition = %(partition)s
        AND (generation < %(generation)s OR generation = %(generation)s AND "offset" < %(offset)s)
"""

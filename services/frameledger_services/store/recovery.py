"""The statements of recovery: each function runs one, in the caller's transaction if it has one, and none commits."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.projections import PROJECTION, StoredPosition

FETCH_ROWS = 500
"""Rows that are fetched at once where there may be millions."""


@dataclass(frozen=True, slots=True)
class RecoveryReceipt:
    """A row of `recoveries`, with what the next recovery needs."""

    generation: int
    partition: int
    happened: str
    begins_at: int
    is_put_back: bool
    put_back_through: int | None


@dataclass(frozen=True, slots=True)
class NewRecoveryReceipt:
    """A new row of `recoveries`. The other columns have defaults, or are set when all is republished."""

    partition: int
    happened: str
    stored_offset: int
    first_offset: int
    end_offset: int
    begins_at: int
    missing: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """What was republished of a partition, for its newest generation: the number of frames, and the highest offset of a
    copy, None if there is no copy."""

    partition: int
    generation: int
    frames: int
    through: int | None


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


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of a partition in one of its generations: from the first one on, below the end."""

    partition: int
    generation: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class FrameDigest:
    """A stored frame, as far as a record can be compared with it."""

    partition: int
    offset: int
    context_id: str
    logged_at: datetime
    sha256: bytes


async def receipts(connection: Connection, topic: str) -> list[RecoveryReceipt]:
    """How every generation of every partition began, but the first."""
    async with connection.cursor(row_factory=class_row(RecoveryReceipt)) as cursor:
        await cursor.execute(
            """
            SELECT
                generation, partition, happened, begins_at, put_back_at IS NOT NULL AS is_put_back, put_back_through
            FROM recoveries
            WHERE topic = %s
            ORDER BY partition, generation
            """,
            (topic,),
        )
        return await cursor.fetchall()


async def seal(connection: Connection, topic: str, generation: int, partitions: int) -> list[StoredPosition]:
    """End a generation: whoever owns a partition of it is fenced, and nobody gets it any more. Where each stands.

    Waits for transactions under way, as `projections.assign` does. A partition that is missing in the answer was
    sealed already.
    """
    async with connection.cursor(row_factory=class_row(StoredPosition)) as cursor:
        await cursor.execute(
            """
            INSERT INTO projections AS p (projection, topic, generation, partition, epoch, sealed_at)
            SELECT %s, %s, %s, number, 1, clock_timestamp()
            FROM generate_series(0, %s - 1) AS number
            ORDER BY number
            ON CONFLICT (projection, topic, generation, partition) DO UPDATE SET
                epoch = p.epoch + 1,
                sealed_at = clock_timestamp()
            WHERE p.sealed_at IS NULL
            RETURNING partition, next_offset, last_offset, last_hash, last_logged_at
            """,
            (PROJECTION, topic, generation, partitions),
        )
        return await cursor.fetchall()


async def begin_topic(
    connection: Connection, topic: str, generation: int, partitions: int, topic_id: UUID | None
) -> None:
    """Store the topic of a new generation."""
    await connection.execute(
        "INSERT INTO topics (topic, generation, partitions, topic_id) VALUES (%s, %s, %s, %s)",
        (topic, generation, partitions, topic_id),
    )


async def begin_partitions(
    connection: Connection, topic: str, generation: int, begun: Sequence[StoredPosition]
) -> None:
    """Store the offsets at which the partitions of a new generation begin."""
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO projections
                (projection, topic, generation, partition, next_offset, last_offset, last_hash, last_logged_at,
                effects_held_until)
            SELECT before.projection, before.topic, %s, before.partition, given.next_offset, %s, %s, %s,
                -- What was held back still is; the next owner says until where.
                CASE WHEN before.effects_held_until IS NOT NULL THEN given.next_offset END
            FROM projections AS before, (VALUES (%s::bigint)) AS given (next_offset)
            WHERE before.projection = %s AND before.topic = %s AND before.generation = %s AND before.partition = %s
            """,
            [
                (
                    generation,
                    one.last_offset,
                    one.last_hash,
                    one.last_logged_at,
                    one.next_offset,
                    PROJECTION,
                    topic,
                    generation - 1,
                    one.partition,
                )
                for one in begun
            ],
        )


async def write_receipts(
    connection: Connection, topic: str, generation: int, given: Sequence[NewRecoveryReceipt]
) -> None:
    """Store the receipts of a recovery."""
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            INSERT INTO recoveries
                (topic, generation, partition, happened, stored_offset, first_offset, end_offset, begins_at, missing)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
            """,
            [
                (
                    topic,
                    generation,
                    one.partition,
                    one.happened,
                    one.stored_offset,
                    one.first_offset,
                    one.end_offset,
                    one.begins_at,
                    one.missing,
                )
                for one in given
            ],
        )


async def note_republished(connection: Connection, topic: str, done: Sequence[PutBack]) -> None:
    """Note that everything that these partitions lost is republished, for these generations and those before them."""
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            UPDATE recoveries SET put_back_at = clock_timestamp(), put_back = %s, put_back_through = %s
            WHERE topic = %s AND partition = %s AND generation <= %s AND happened = 'lost_tail' AND put_back_at IS NULL
            """,
            [(one.frames, one.through, topic, one.partition, one.generation) for one in done],
        )


async def stored_frames(
    connection: Connection, spans: Sequence[OffsetRange]
) -> AsyncGenerator[FrameDigest, None]:
    """Yields the stored frames whose records lay in these spans, by partition and in the order of their offsets. In the
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
            -- Said by itself, it is what the index by offset is asked for.
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
        cursor.itersize = FETCH_ROWS
        await cursor.execute(
            f"""
            SELECT
                frames.partition, frames.generation, frames."offset", frames.context_id, frames.frame_id,
                frames.source, frames.trace_id, frames.causation_id,
                convert_to(frames.payload::text, 'UTF8') AS payload, frames.erased_at
            {_LOST}
            ORDER BY frames.partition, frames.generation, frames."offset"
            """,
            _lost(lost),
        )
        async for row in cursor:
            yield row


# A frame that erased a conversation is in its receipt.
_LOST = """
    FROM (
        SELECT partition, generation, "offset", context_id, frame_id, source, trace_id, causation_id, payload,
            NULL AS erased_at
        FROM frames
        UNION ALL
        SELECT partition, generation, "offset", context_id, frame_id, source, trace_id, NULL, payload,
            coalesce(logged_at, erased_at)
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

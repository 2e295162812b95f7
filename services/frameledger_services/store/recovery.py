"""The statements of recovery: each function runs one, in the caller's transaction if it has one, and none commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.projections import PROJECTION, StoredPosition


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
class Republication:
    """The republished frames of a partition, for its newest generation: their number, and the highest offset of a copy,
    None if there is no copy."""

    partition: int
    generation: int
    frames: int
    through: int | None


async def receipts(connection: Connection, topic: str) -> list[RecoveryReceipt]:
    """Returns the start of every generation of every partition, except the first."""
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
    """End a generation: the owners of its partitions are fenced, and no projector can take one over. Returns the
    position of each partition.

    Waits for transactions in progress, as `projections.assign` does. A missing partition was already sealed.
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
    connection: Connection, topic: str, generation: int, positions: Sequence[StoredPosition]
) -> None:
    """Store the offsets at which the partitions of a new generation begin."""
    await _execute_each(
        connection,
        """
        INSERT INTO projections
            (projection, topic, generation, partition, next_offset, last_offset, last_hash, last_logged_at,
            effects_held_until)
        SELECT before.projection, before.topic, %s, before.partition, given.next_offset, %s, %s, %s,
            -- Held effects stay held; the next owner sets the offset.
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
            for one in positions
        ],
    )


async def write_receipts(
    connection: Connection, topic: str, generation: int, receipts: Sequence[NewRecoveryReceipt]
) -> None:
    """Store the receipts of a recovery."""
    await _execute_each(
        connection,
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
            for one in receipts
        ],
    )


async def note_republished(
    connection: Connection, topic: str, republications: Sequence[Republication]
) -> None:
    """Record that everything these partitions lost was republished, for these generations and earlier ones."""
    async with connection.cursor() as cursor:
        await cursor.executemany(
            """
            UPDATE recoveries SET put_back_at = clock_timestamp(), put_back = %s, put_back_through = %s
            WHERE topic = %s AND partition = %s AND generation <= %s AND happened = 'lost_tail' AND put_back_at IS NULL
            """,
            [(one.frames, one.through, topic, one.partition, one.generation) for one in republications],
        )


async def _execute_each(
    connection: Connection, statement: LiteralString, rows: Iterable[Sequence[Any]]
) -> None:
    """Execute a statement for each row, in a transaction that holds partitions. Not by `executemany`: after its
    pipeline PostgreSQL does not end an idle transaction, and a process that stalls there would hold them."""
    for row in rows:
        await connection.execute(statement, row)

"""Parked conversations: listing them, and the statements that resume one.

Each function runs one statement in the caller's transaction; none commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.frame_pages import FramePages
from frameledger_services.store.projections import PROJECTION


@dataclass(frozen=True, slots=True)
class Parked:
    """A conversation with `waiting` frames, from version `since` on, that are stored but not folded."""

    context_id: str
    since: int
    waiting: int
    parked_at: datetime
    error: str


class ParkedFrame(NamedTuple):
    """A frame that is stored but not folded."""

    version: int
    frame_id: UUID
    logged_at: datetime
    partition: int
    generation: int
    offset: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a parked frame."""

    version: int
    outcome: str
    reason: str | None


async def conversations(connection: Connection) -> list[Parked]:
    """Returns the parked conversations, in the order in which they were parked."""
    async with connection.cursor(row_factory=class_row(Parked)) as cursor:
        await cursor.execute(
            """
            SELECT
                context_id, parked_version AS since, version - parked_version + 1 AS waiting, parked_at,
                parked_error AS error
            FROM contexts
            WHERE parked_version IS NOT NULL
            ORDER BY contexts.parked_at, context_id
            """
        )
        return await cursor.fetchall()


async def partition_of(connection: Connection, context_id: str) -> int | None:
    """Returns the partition of a conversation's frames; None if it does not exist."""
    cursor = await connection.execute(
        "SELECT partition FROM frames WHERE context_id = %s ORDER BY version DESC LIMIT 1", (context_id,)
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def fence(connection: Connection, topic: str, partition: int) -> bool:
    """Lock a partition until the transaction ends, and fence its owner, because the heads in its memory are no longer
    valid. The owner notices with its next batch, drops them, and takes the partition over again. Returns whether its
    effects are held back."""
    for _ in range(2):
        cursor = await connection.execute(
            """
            UPDATE projections SET epoch = epoch + 1
            WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND partition = %s
            RETURNING effects_held_until IS NOT NULL
            """,
            (PROJECTION, topic, partition),
        )
        # None: the partition was never read, or `recover` sealed its row while this waited for it, and a newer
        # generation has a row by now.
        if (row := await cursor.fetchone()) is not None:
            return bool(row[0])
    return False


async def hold(connection: Connection, context_id: str) -> datetime | None:
    """Lock a parked conversation. Returns the time, or None if it is not parked, or does not exist."""
    cursor = await connection.execute(
        """
        SELECT clock_timestamp() FROM contexts
        WHERE context_id = %s AND parked_version IS NOT NULL
        FOR NO KEY UPDATE
        """,
        (context_id,),
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def next_frames(
    connection: Connection, context_id: str, version: int, *, limit: int, limit_bytes: int
) -> list[ParkedFrame]:
    """Returns the frames of a conversation from a version on, in order: at most `limit`, and none after the frame that
    brings them above `limit_bytes`."""
    return await _FRAMES.page(connection, context_id, after=version - 1, limit=limit, limit_bytes=limit_bytes)


_FRAMES = FramePages(ParkedFrame._make, ParkedFrame._fields)


async def settle(connection: Connection, context_id: str, settled: Sequence[Settled], why: str) -> None:
    """Give these frames their outcomes; `outcome_changes` records who did it, and why."""
    await connection.execute(
        """
        SELECT count(settle_outcome(%s, settled.version, settled.outcome, settled.reason, %s))
        FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS settled (version, outcome, reason)
        """,
        (
            context_id,
            why,
            [one.version for one in settled],
            [one.outcome for one in settled],
            [one.reason for one in settled],
        ),
    )


async def park_from(connection: Connection, context_id: str, version: int, error: str | None) -> None:
    """Keep a conversation parked from this version on, with a new error or with the one that it had."""
    await connection.execute(
        """
        UPDATE contexts SET
            parked_version = %s,
            parked_error = coalesce(%s, parked_error),
            parked_at = CASE WHEN %s THEN clock_timestamp() ELSE parked_at END
        WHERE context_id = %s
        """,
        (version, error, error is not None, context_id),
    )


async def release(connection: Connection, context_id: str) -> None:
    """End the parking of a conversation."""
    await connection.execute(
        "UPDATE contexts SET parked_version = NULL, parked_at = NULL, parked_error = NULL WHERE context_id = %s",
        (context_id,),
    )

"""What a replay reads: frames of a conversation in order, with which attempt of their run it was that counted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import class_row

Connection = AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """A stored frame with its times. `attempt` and `claim` are those of the latest attempt of the run that it names;
    None if it names none that is known."""

    version: int
    frame_id: UUID
    type: str
    outcome: str
    logged_at: datetime
    produced_at: datetime | None
    causation_id: UUID | None
    payload: bytes
    attempt: int | None
    claim: str | None


async def frames(
    connection: Connection, context_id: str, after: int, until: int, limit: int
) -> list[RecordedFrame]:
    """Returns the frames of a conversation after a version and up to another one, in order, `limit` at most."""
    async with connection.cursor(row_factory=class_row(RecordedFrame)) as cursor:
        await cursor.execute(
            """
            SELECT frames.version, frames.frame_id, frames.type, frames.outcome, frames.logged_at,
                frames.produced_at, frames.causation_id, convert_to(frames.payload::text, 'UTF8') AS payload,
                runs.attempt, runs.claim
            FROM frames
            LEFT JOIN runs ON runs.context_id = frames.context_id AND runs.run_id = frames.run_id
            WHERE frames.context_id = %s AND frames.version > %s AND frames.version <= %s
            ORDER BY frames.version
            LIMIT %s
            """,
            (context_id, after, until, limit),
        )
        return await cursor.fetchall()


async def is_recording(connection: Connection, context_id: str) -> bool:
    """Returns whether a conversation is a recording now; False for one that does not exist."""
    cursor = await connection.execute("SELECT recording FROM contexts WHERE context_id = %s", (context_id,))
    row = await cursor.fetchone()
    return row is not None and bool(row[0])

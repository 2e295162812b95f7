"""The statement of a retried dead letter, in the caller's transaction."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection


async def note_retried(connection: AsyncConnection[Any], topic: str, partition: int, offset: int) -> None:
    """Note that a rejected frame was published again, now. The last time counts."""
    await connection.execute(
        """
        UPDATE rejected_frames SET retried_at = clock_timestamp()
        WHERE topic = %s AND partition = %s AND "offset" = %s
        """,
        (topic, partition, offset),
    )

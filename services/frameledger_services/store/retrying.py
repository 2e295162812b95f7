"""The statement of a retried dead letter, in the caller's transaction."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from frameledger.record import Place


async def note_retried(connection: AsyncConnection[Any], place: Place) -> None:
    """Note that a rejected frame was published again, now. The last time counts."""
    await connection.execute(
        """
        UPDATE rejected_frames SET retried_at = clock_timestamp()
        WHERE topic = %s AND partition = %s AND generation = %s AND "offset" = %s
        """,
        (place.topic, place.partition, place.generation, place.offset),
    )

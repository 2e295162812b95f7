"""Rows that other releases wrote: frames of types unknown to this release, and messages without a time.

Each function runs one statement on the caller's connection and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import class_row

from frameledger_services.database_types import Connection

UNKNOWN_DAYS = 7
"""Older frames of unknown type are not reported: they stay in the archive after their cause was fixed."""

COUNTED = 1_000
"""Counting stops at this number."""


@dataclass(frozen=True, slots=True)
class UnknownFrames:
    """Frames of the last days whose type this release does not know. `count` goes up to `COUNTED`."""

    count: int
    newest_type: str
    newest_source: str | None


async def unknown_frames(connection: Connection) -> UnknownFrames | None:
    """Returns those that were logged in the last `UNKNOWN_DAYS` days; None if there are none."""
    async with connection.cursor(row_factory=class_row(UnknownFrames)) as cursor:
        await cursor.execute(
            """
            SELECT count(*) AS count, (array_agg(type ORDER BY logged_at DESC))[1] AS newest_type,
                (array_agg(source ORDER BY logged_at DESC))[1] AS newest_source
            FROM (
                SELECT type, source, logged_at FROM frames
                WHERE outcome = 'unknown' AND logged_at > now() - %s * interval '1 day'
                ORDER BY logged_at DESC
                LIMIT %s
            ) AS newest
            HAVING count(*) > 0
            """,
            (UNKNOWN_DAYS, COUNTED),
        )
        return await cursor.fetchone()


async def messages_without_time(connection: Connection) -> int:
    """Returns the number of messages that an older release wrote without a time, up to `COUNTED`."""
    cursor = await connection.execute(
        "SELECT count(*) FROM (SELECT FROM messages WHERE said_at IS NULL LIMIT %s) AS without", (COUNTED,)
    )
    row = await cursor.fetchone()
    assert row is not None, "an aggregate has one row"
    return int(row[0])

"""Versions of a conversation without a row in `frames`, with the rows before and after them.

Each function runs one statement, in the caller's transaction if there is one, and none commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


@dataclass(frozen=True, slots=True)
class VersionGap:
    """Versions that are missing between `before`, a stored frame, and `behind`, the next stored frame or the head."""

    before: int
    behind: int


@dataclass(frozen=True, slots=True)
class Neighbor:
    """A stored frame at one end of a gap."""

    version: int
    chain: bytes
    generation: int
    offset: int
    logged_at: datetime
    source: str | None
    payload: bytes


async def gaps(connection: Connection, context_id: str, first: int) -> list[VersionGap]:
    """Returns the gaps in the frames of a conversation whose first version is `first`."""
    async with connection.cursor(row_factory=class_row(VersionGap)) as cursor:
        await cursor.execute(
            """
            SELECT before, behind
            FROM (
                SELECT version AS before, lead(version) OVER (ORDER BY version) AS behind
                FROM (
                    SELECT version FROM frames WHERE context_id = %(id)s
                    UNION ALL
                    SELECT %(first)s - 1
                    UNION ALL
                    SELECT version + 1 FROM contexts WHERE context_id = %(id)s
                ) AS known
            ) AS pairs
            WHERE behind > before + 1
            ORDER BY before
            """,
            {"id": context_id, "first": first},
        )
        return await cursor.fetchall()


async def neighbor(connection: Connection, context_id: str, version: int) -> Neighbor | None:
    """Returns a stored frame; None if it does not exist."""
    async with connection.cursor(row_factory=class_row(Neighbor)) as cursor:
        await cursor.execute(
            """
            SELECT
                version, chain, generation, "offset", logged_at, source, convert_to(payload::text, 'UTF8') AS payload
            FROM frames
            WHERE context_id = %s AND version = %s
            """,
            (context_id, version),
        )
        return await cursor.fetchone()

"""The position up to which the projectors have read each partition of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.projections import PROJECTION
from frameledger_services.store.server import THIS_DATABASE


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The position up to which a partition was read."""

    partition: int
    next_offset: int
    gap: int | None
    """The number of records that were not stored when the owner last checked, or None if it never has."""

    lag_seconds: float | None
    """The age of the newest record that was read, if there is a gap; otherwise 0. None if `gap` is None."""

    owner: str | None
    is_owned: bool
    """Whether the owner's session is alive, in this database."""


async def progress(connection: Connection, topic: str) -> list[PartitionProgress]:
    """Returns the progress of each partition of a topic that was ever read, and whether a live session owns it."""
    async with connection.cursor(row_factory=class_row(PartitionProgress)) as cursor:
        await cursor.execute(
            f"""
            SELECT
                p.partition, p.next_offset, greatest(p.end_offset - p.next_offset, 0) AS gap,
                CASE
                    WHEN p.next_offset < p.end_offset
                        THEN greatest(extract(epoch FROM clock_timestamp() - p.last_logged_at), 0)::float8
                    WHEN p.end_offset IS NOT NULL THEN 0::float8
                END AS lag_seconds,
                p.owner, session.pid IS NOT NULL AS is_owned
            FROM projections AS p
            LEFT JOIN pg_stat_get_activity(NULL) AS session
                -- Users without the permission see only the pids of other users' sessions.
                ON session.pid = p.owner_pid AND coalesce(session.backend_start = p.owner_started_at, true)
                    AND session.datid = {THIS_DATABASE}
            WHERE p.projection = %s AND p.topic = %s AND p.sealed_at IS NULL
            ORDER BY p.partition
            """,
            (PROJECTION, topic),
        )
        return await cursor.fetchall()

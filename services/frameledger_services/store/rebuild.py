"""The statements of a rebuild: each function runs one, in the caller's transaction, and none commits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.projections import PROJECTION


@dataclass(frozen=True, slots=True)
class HeldHead:
    """The columns of `contexts` that are not derived from the conversation's frames, and those that the fold of the
    frames has to match."""

    version: int
    parked_version: int | None
    chain: bytes
    duplicate_count: int
    fold_version: int
    rebuilt: int
    now: datetime
    """The database's time."""

    @property
    def folded_version(self) -> int:
        """The version up to which its frames are folded."""
        return self.version if self.parked_version is None else min(self.parked_version - 1, self.version)


class OpenWork(NamedTuple):
    """An open run, or a call that was dispatched and is not settled. Its version is that of the frame that requested
    it."""

    kind: str
    id: str
    version: int

    def __str__(self) -> str:
        return f"{self.kind} {self.id} (version {self.version})"


async def hold(connection: Connection, context_id: str) -> HeldHead | None:
    """Lock a conversation: a batch with a frame of it waits. Returns None if it does not exist."""
    return await _head(connection, f"{_HEAD} FOR NO KEY UPDATE", context_id)


async def look(connection: Connection, context_id: str) -> HeldHead | None:
    """Read the same without a lock: it may change at any time."""
    return await _head(connection, _HEAD, context_id)


async def _head(connection: Connection, query: str, context_id: str) -> HeldHead | None:
    async with connection.cursor(row_factory=class_row(HeldHead)) as cursor:
        await cursor.execute(query, (context_id,))
        return await cursor.fetchone()


_HEAD = """
    SELECT
        version, parked_version, chain, duplicate_count, fold_version, rebuilt, clock_timestamp() AS now
    FROM contexts
    WHERE context_id = %s
"""


async def times(connection: Connection, context_id: str) -> tuple[datetime, datetime] | None:
    """Returns when the oldest and the newest stored frame of a conversation were logged; None if it has none."""
    cursor = await connection.execute(
        """
        SELECT oldest.logged_at, newest.logged_at
        FROM
            (SELECT logged_at FROM frames WHERE context_id = %(id)s ORDER BY version LIMIT 1) AS oldest,
            (SELECT logged_at FROM frames WHERE context_id = %(id)s ORDER BY version DESC LIMIT 1) AS newest
        """,
        {"id": context_id},
    )
    return await cursor.fetchone()


async def delete_rows(connection: Connection, context_id: str) -> None:
    """Delete what was projected from the frames of a conversation, except its head."""
    await connection.execute(
        """
        WITH
            of_messages AS (DELETE FROM messages WHERE context_id = %(id)s),
            of_eras AS (DELETE FROM eras WHERE context_id = %(id)s),
            of_settings AS (DELETE FROM context_settings WHERE context_id = %(id)s),
            of_runs AS (DELETE FROM runs WHERE context_id = %(id)s)
        DELETE FROM tool_calls WHERE context_id = %(id)s
        """,
        {"id": context_id},
    )


async def end(connection: Connection, context_id: str, *, on_disk: bool) -> None:
    """Record that a conversation was rebuilt, all of it by the fold that its head names. Unless `on_disk`, a crash of
    the database shortly after the commit may undo this and everything that is committed later."""
    await connection.execute(
        """
        UPDATE contexts SET rebuilt = rebuilt + 1, folded_by = NULL
        WHERE context_id = %s AND (%s OR set_config('synchronous_commit', 'off', true) = 'off')
        """,
        (context_id, on_disk),
    )


async def any_partition(connection: Connection, topic: str) -> int | None:
    """Returns a partition that projectors read, always the same one; None if none was ever read."""
    cursor = await connection.execute(
        "SELECT min(partition) FROM projections WHERE projection = %s AND topic = %s AND sealed_at IS NULL",
        (PROJECTION, topic),
    )
    row = await cursor.fetchone()
    return None if row is None or row[0] is None else int(row[0])


async def open_work(connection: Connection, context_id: str) -> set[OpenWork]:
    """Returns the work of a conversation that was requested and has not ended."""
    cursor = await connection.execute(
        """
        SELECT 'run', run_id, opened_version FROM runs WHERE context_id = %(id)s AND status = 'open'
        UNION ALL
        SELECT 'call', tool_call_id, dispatched_version FROM tool_calls
        WHERE context_id = %(id)s AND status IN ('dispatched', 'running', 'waiting') AND dispatched_version IS NOT NULL
        """,
        {"id": context_id},
    )
    return set(map(OpenWork._make, await cursor.fetchall()))

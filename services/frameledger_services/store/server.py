"""The state of the database server: standbys, waiting commits, long transactions."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import class_row

from frameledger_services.database import backend
from frameledger_services.database_types import Connection

THIS_DATABASE = "(SELECT oid FROM pg_database WHERE datname = current_database())"
"""SQL: the database of the session. Process ids and locks are those of the whole server, and a dump that is restored
beside its original has rows with the same owners, who own nothing there."""


@dataclass(frozen=True, slots=True)
class Server:
    """The state of a server at one moment, as far as our user may see it."""

    is_read_only: bool
    is_standby: bool
    sees_all: bool
    """Whether our user sees other users' sessions (`pg_read_all_stats`). Otherwise the following values may be
    higher."""

    asynchronous: int
    """Standbys that a commit does not wait for."""

    synchronous: int
    waiting: int
    """Sessions whose commit waits for a standby."""

    waiting_seconds: float
    """The duration of the longest of these waits."""

    oldest_seconds: float
    """The age of the transaction or statement that keeps the oldest row versions alive."""

    oldest: str | None
    """The name and pid of its session."""


async def look(connection: Connection) -> Server:
    """Returns the current state of the server. One statement."""
    async with connection.cursor(row_factory=class_row(Server)) as cursor:
        await cursor.execute(_LOOK)
        row = await cursor.fetchone()
    assert row is not None, "without FROM there is one row"
    return row


async def is_pooled(connection: Connection) -> bool:
    """Whether there is a connection pooler in between: it reports a process id that is not the server's."""
    return await backend(connection) != connection.info.backend_pid


_LOOK = """
    WITH sessions AS (
        SELECT pid, application_name, wait_event, xact_start, state_change, backend_xmin
        FROM pg_stat_activity
        WHERE pid <> pg_backend_pid()
    ),
    oldest AS (
        SELECT pid, application_name, xact_start FROM sessions
        WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL
        ORDER BY age(backend_xmin) DESC, xact_start
        LIMIT 1
    )
    SELECT
        current_setting('transaction_read_only')::boolean AS is_read_only,
        pg_is_in_recovery() AS is_standby,
        pg_has_role('pg_read_all_stats', 'USAGE') AS sees_all,
        (SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'async') AS asynchronous,
        (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum', 'potential')) AS synchronous,
        (SELECT count(*) FROM sessions WHERE wait_event = 'SyncRep') AS waiting,
        coalesce((
            SELECT extract(epoch FROM clock_timestamp() - min(state_change)) FROM sessions
            WHERE wait_event = 'SyncRep'
        ), 0)::float8 AS waiting_seconds,
        coalesce((SELECT extract(epoch FROM clock_timestamp() - xact_start) FROM oldest), 0)::float8 AS oldest_seconds,
        (SELECT format('%s (pid %s)', coalesce(nullif(application_name, ''), 'a session'), pid) FROM oldest) AS oldest
"""


async def commits_asynchronously(connection: Connection) -> bool:
    """Returns whether a crash may lose a commit that was reported as successful to a session like this one."""
    row = await (await connection.execute("SHOW synchronous_commit")).fetchone()
    return row is not None and row[0] == "off"

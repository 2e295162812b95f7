"""Waits until commits are on PostgreSQL's disk: most batches of a projector do not wait for it themselves."""

from __future__ import annotations

from frameledger_services.database_types import Connection

WAL_MESSAGE = "pg_logical_emit_message(true, 'frameledger', '')"
"""An expression that makes the commit of its transaction wait for the disk. PostgreSQL does not wait for a transaction
that writes nothing to the WAL, or only notifies. Nobody reads the message."""


async def flush(connection: Connection) -> None:
    """Return when all commits of any session before this call are on disk. The connection must be in autocommit, and
    not in a transaction."""
    await connection.execute(f"SELECT {WAL_MESSAGE}")

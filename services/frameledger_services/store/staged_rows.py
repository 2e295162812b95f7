"""Staged rows of one conversation: written to temporary tables while the existing rows stay unchanged, and moved into
their place afterwards, without being locked before. A rebuild stages what it folds (`replace_rows`), an import its
frames too (`insert_rows`).

The temporary tables belong to the caller's transaction: they end with it, whatever happens to the process. Each
function runs in that transaction, and none commits.
"""

from __future__ import annotations

from sqlalchemy import MetaData, Table

from frameledger_services.database_types import Connection
from frameledger_services.store import tables

FOLDED = (tables.messages, tables.eras, tables.context_settings, tables.runs, tables.tool_calls)
"""The tables with what is folded from the frames of a conversation, except its head."""

_METADATA = MetaData()

STAGED = {
    table: table.to_metadata(_METADATA, name=f"staged_{table.name}") for table in (tables.frames, *FOLDED)
}
"""The temporary table of each table."""


async def may_stage(connection: Connection) -> bool:
    """Returns whether this user may create temporary tables: every user may, unless that was revoked."""
    cursor = await connection.execute("SELECT has_database_privilege(current_database(), 'TEMPORARY')")
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def create(connection: Connection, *, with_frames: bool = False) -> None:
    """Create the temporary tables, empty."""
    for table in FOLDED:
        await _create(connection, table)
    if with_frames:
        await _create(
            connection, tables.frames, ', CONSTRAINT "frames_frame_id_key" UNIQUE (context_id, frame_id)'
        )


async def _create(connection: Connection, table: Table, constraint: str = "") -> None:
    await connection.execute(
        f'CREATE TEMPORARY TABLE "{STAGED[table].name}" (LIKE "{table.name}" INCLUDING DEFAULTS, '
        f"PRIMARY KEY ({_listed(_key(table))}){constraint}) ON COMMIT DROP"
    )


async def analyze(connection: Connection) -> None:
    """Give the planner statistics of the staged rows: `replace_rows` is fast with them."""
    for table in FOLDED:
        await connection.execute(f'ANALYZE "{STAGED[table].name}"')


async def insert_rows(connection: Connection) -> None:
    """Insert the staged frames and rows of a conversation that has none. Raises `UniqueViolation` if it has."""
    for table, staged in STAGED.items():
        columns = _listed([str(column.name) for column in table.columns])
        await connection.execute(
            f'INSERT INTO "{table.name}" ({columns}) SELECT {columns} FROM "{staged.name}" '
            f"ORDER BY {_listed(_key(table))}"
        )


async def replace_rows(connection: Connection, context_id: str) -> None:
    """Replace the existing rows by the staged ones. Identical rows are left unchanged, so that this takes the time of
    comparing rows, which is a small part of the time of writing them.

    Called again, it changes nothing.
    """
    for table in FOLDED:
        staged = STAGED[table]
        of_key = " AND ".join(f'staged."{column}" = had."{column}"' for column in _key(table))
        await connection.execute(
            f"""
            DELETE FROM "{table.name}" AS had
            WHERE had.context_id = %s AND NOT EXISTS (
                SELECT FROM "{staged.name}" AS staged WHERE {of_key} AND staged::text = had::text
            )
            """,
            (context_id,),
        )
        columns = [str(column.name) for column in table.columns]
        await connection.execute(
            f"""
            INSERT INTO "{table.name}" ({_listed(columns)})
            SELECT {_listed(columns)} FROM "{staged.name}" AS staged
            WHERE NOT EXISTS (SELECT FROM "{table.name}" AS had WHERE {of_key})
            """
        )


def _key(table: Table) -> list[str]:
    return [str(column.name) for column in table.primary_key.columns]


def _listed(columns: list[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)

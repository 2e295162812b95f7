"""The rows of one conversation, staged: written to temporary tables, while those that are there stay as they are, and
then put in their place.

The temporary tables are the caller's transaction's: they are gone with it, whatever becomes of the process. Each
function runs in that transaction, and none commits.
"""

from __future__ import annotations

from sqlalchemy import MetaData, Table

from frameledger_services.database_types import Connection
from frameledger_services.store import tables

FOLDED = (tables.messages, tables.eras, tables.context_settings, tables.runs, tables.tool_calls)
"""The tables with what is folded from the frames of a conversation, but its head."""

_METADATA = MetaData()

STAGED = {table: table.to_metadata(_METADATA, name=f"staged_{table.name}") for table in FOLDED}
"""The temporary table of each."""


async def may_stage(connection: Connection) -> bool:
    """Returns whether this user may create temporary tables: every user may, unless that was revoked."""
    cursor = await connection.execute("SELECT has_database_privilege(current_database(), 'TEMPORARY')")
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def create(connection: Connection) -> None:
    """Create the temporary tables, empty."""
    for table, staged in STAGED.items():
        await connection.execute(
            f'CREATE TEMPORARY TABLE "{staged.name}" '
            f'(LIKE "{table.name}" INCLUDING DEFAULTS, PRIMARY KEY ({_listed(_key(table))})) ON COMMIT DROP'
        )


async def analyze(connection: Connection) -> None:
    """Tell the planner what was staged: `replace_rows` is quick with it."""
    for staged in STAGED.values():
        await connection.execute(f'ANALYZE "{staged.name}"')


async def replace_rows(connection: Connection, context_id: str) -> None:
    """Put the staged rows in the place of those that are there. Rows that are the same are left as they are, so that it
    takes the time of comparing, which is a small part of that of writing.

    Called again it changes nothing.
    """
    for table, staged in STAGED.items():
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

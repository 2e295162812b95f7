"""The writes of a batch as data, and a statement for each. No function here commits.

A small batch is written by `single_statement` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Table

from frameledger.errors import FencedError
from frameledger.values import value
from frameledger_services.database_types import Connection
from frameledger_services.store import row_parameters, tables
from frameledger_services.store.binary_copy import copy_in
from frameledger_services.store.valid_to import FOR_EVER

Row = dict[str, Any]
Ended = tuple[str, int, int, int]
"""A message that is no longer current: its context, era and position, and the version that ended it."""


@value
class Insert:
    """Rows to insert, as values in the order of `columns`; JSON as bytes of its text."""

    table: Table
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


@value
class Update:
    """Rows to update: each has the columns of the key, and those that change."""

    table: Table
    key: tuple[str, ...]
    rows: Sequence[Row]
    usual: frozenset[str] = frozenset()
    """Columns that change in nearly every row; the statement is shorter if they change in all."""

    @property
    def update(self) -> str:
        """The statement that updates the rows; its parameter comes from `row_parameters.changes`."""
        always = self.usual if all(self.usual <= row.keys() for row in self.rows) else frozenset()
        least = len(self.key) + len(always)
        others = any(len(row) > least for row in self.rows)
        return row_parameters.update_of(self.table, self.key, always, others=others)


def insert_of(table: Table, rows: Sequence[Row]) -> Insert:
    """Returns the insert of rows that may omit columns, which get their default."""
    named = set().union(*rows)
    columns = tuple(str(column.name) for column in table.columns if column.name in named) if rows else ()
    defaults = {column: default_of(table, column) for column in columns}
    return Insert(table, columns, [[row.get(column, defaults[column]) for column in columns] for row in rows])


async def insert(connection: Connection, rows: Insert) -> None:
    """Insert rows, by COPY. Raises psycopg's errors; `UniqueViolation` for a row that exists."""
    if rows.rows:
        await copy_in(connection, rows.table, rows.columns, rows.rows)


async def insert_values(connection: Connection, rows: Insert) -> None:
    """Insert rows by one statement that has all of them as one parameter. Slower than COPY, but no lock remains if this
    process stops in the middle: PostgreSQL finishes it or, if not all of it was sent, ends the session by its limit for
    idle transactions."""
    if rows.rows:
        kinds = row_parameters.columns_of(rows.table, rows.columns)
        names = ", ".join(f'"{column}"' for column in kinds)
        values = ", ".join(row_parameters.value_of(column, kind) for column, kind in kinds.items())
        await connection.execute(
            f'INSERT INTO "{rows.table.name}" ({names}) SELECT {values} FROM {row_parameters.from_item(kinds)}',
            row_parameters.parameters(kinds, rows.rows),
            # Otherwise the statement and the rows are sent as one request. If this process stops within a large one,
            # the statement has arrived, and the limit does not count while PostgreSQL waits for the rest.
            prepare=True,
        )


class StaleHeadError(FencedError):
    """A conversation of a batch changed in the database since it was loaded: it was rebuilt or erased.

    Remedy: None is needed: the projector drops its copy in memory and loads the conversation again.
    """

    def __init__(self) -> None:
        super().__init__("a conversation was rebuilt or erased since it was loaded")


async def update(connection: Connection, rows: Update) -> None:
    """Update rows, in one statement. Raises `StaleHeadError` if a row of `contexts` does not exist."""
    if rows.rows:
        cursor = await connection.execute(rows.update, (row_parameters.changes(rows.table, rows.rows),))
        if rows.table is tables.contexts and cursor.rowcount < len(rows.rows):
            raise StaleHeadError


async def end_messages(
    connection: Connection, ended: Sequence[Ended], table: Table = tables.messages
) -> dict[tuple[str, int, int], str | None]:
    """End the validity of messages. Returns the run that said each, by context, era and position."""
    if not ended:
        return {}
    cursor = await connection.execute(ending(table), row_parameters.parameters(ENDED, ended))
    return {(row[0], row[1], row[2]): row[3] for row in await cursor.fetchall()}


ENDED = {"context_id": "text", "era": "int4", "position": "int4", "version": "int8"}


def ending(table: Table = tables.messages, *, single: bool = False) -> str:
    """Returns the statement that ends the validity of messages and returns their runs."""
    return f"""
        UPDATE "{table.name}" AS messages SET valid_to = given.version
        FROM {row_parameters.from_item(ENDED, single=single)}
        WHERE messages.context_id = given.context_id AND messages.era = given.era
            AND messages.position = given.position AND messages.valid_to = {FOR_EVER}
        RETURNING messages.context_id, messages.era, messages.position, messages.run_id
    """


@lru_cache(maxsize=256)
def default_of(table: Table, column: str) -> Any:
    """Returns the server default of a column, as a value."""
    default = table.c[column].server_default
    if default is None:
        return None
    text = str(getattr(default, "arg", ""))
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text.strip("'").encode()

"""Many rows as one parameter: a JSON array that the database takes apart again.

Cheaper to make than an array for each column, and one statement whatever the number of rows, so that it stays
prepared. Values of `json` columns travel as the text that they are, inside a string, and come out to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Table

from frameledger_services.store.copying import type_name

Columns = Mapping[str, str]
"""Columns in their order, each with PostgreSQL's name of its type."""

COUNTED = {"progress_count"}
"""Columns of which a change says by how much."""


def given(columns: Columns) -> str:
    """What stands behind FROM: rows named `given`, which the parameter holds that `encoded` made."""
    # As `text`, since the JSON inside of JSON would lose its spaces and could not hold an escaped NUL.
    definitions = ", ".join(
        f'"{column}" {"text" if kind == "json" else kind}' for column, kind in columns.items()
    )
    return f"json_to_recordset(%s::json) AS given ({definitions})"


def value_of(column: str, kind: str) -> str:
    """A column of `given`, as a table takes it."""
    return f'given."{column}"' + ("::json" if kind == "json" else "")


def encoded(columns: Columns, rows: Iterable[Sequence[Any]]) -> str:
    """The parameter for rows given as values in the order of `columns`; JSON as bytes of its text."""
    written = [(column, _WRITTEN.get(kind)) for column, kind in columns.items()]
    return orjson.dumps(
        [
            {
                column: value if write is None or value is None else write(value)
                for (column, write), value in zip(written, row, strict=True)
            }
            for row in rows
        ]
    ).decode()


@lru_cache(maxsize=256)
def columns_of(table: Table, names: tuple[str, ...]) -> Columns:
    """Some columns of a table."""
    # SQLAlchemy's names are a kind of str that orjson does not take.
    return {str(name): type_name(table, name) for name in names}


@lru_cache(maxsize=64)
def update_of(table: Table, key: tuple[str, ...]) -> str:
    """What stands behind UPDATE to change rows in what each of them says, found by their key.

    It is the same whichever columns change: `changes` of a row is a number whose bits say which.
    """
    columns = columns_of(table, tuple(column.name for column in table.columns))
    assignments = ", ".join(
        f'"{column}" = CASE WHEN given.changes & {1 << bit} = 0 THEN "{table.name}"."{column}" ELSE '
        + (f'"{table.name}"."{column}" + ' if column in COUNTED else "")
        + f"{value_of(column, kind)} END"
        for bit, (column, kind) in enumerate(columns.items())
        if column not in key
    )
    same = " AND ".join(f'"{table.name}"."{column}" = given."{column}"' for column in key)
    return f'"{table.name}" SET {assignments} FROM {given({**columns, "changes": "int8"})} WHERE {same}'


def changes(table: Table, rows: Iterable[Mapping[str, Any]]) -> str:
    """The parameter of `update_of` for rows that have the key's columns and those that change."""
    return orjson.dumps([_change(row, *_writers(table, tuple(row))) for row in rows]).decode()


def _change(
    row: Mapping[str, Any], bits: int, writers: Sequence[tuple[str, Callable[[Any], str]]]
) -> dict[str, Any]:
    written = {**row, "changes": bits}
    for column, write in writers:
        if written[column] is not None:
            written[column] = write(written[column])
    return written


@lru_cache(maxsize=1_024)
def _writers(table: Table, names: tuple[str, ...]) -> tuple[int, Sequence[tuple[str, Callable[[Any], str]]]]:
    """The bits of these columns, and how those are written that JSON has no values for."""
    bits = sum(1 << bit for bit, column in enumerate(table.columns) if column.name in names)
    writers = [(name, _WRITTEN.get(type_name(table, name))) for name in names]
    return bits, [(name, write) for name, write in writers if write is not None]


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "json": lambda text: text if isinstance(text, str) else text.decode(),
    "bytea": lambda value: f"\\x{value.hex()}",
}
"""Types of which JSON has no values that the database would read."""

"""Rows as parameters: several as one JSON array, for `json_to_recordset`; a single one as its values.

One array is cheaper than one per column, and the statement does not depend on the number of rows, so it stays prepared.
Values of `json` columns are strings in the array, and are stored byte for byte. For a single row the database need not
parse anything if each value is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import Table

from frameledger_services.store.binary_copy import type_name

Columns = Mapping[str, str]
"""Columns in their order, each with PostgreSQL's name of its type."""

COUNTED = {"progress_count"}
"""Columns that a change increases by an amount."""


def from_item(columns: Columns, *, single: bool = False) -> str:
    """Returns the item of a FROM clause: rows named `given`, whose values are the parameters that `parameters`
    returns."""
    if single:
        items = ", ".join(f'%s::{kind} AS "{column}"' for column, kind in columns.items())
        return f"(SELECT {items}) AS given"
    # As `text`, since JSON inside JSON would lose its whitespace and could not contain an escaped NUL.
    definitions = ", ".join(
        f'"{column}" {"text" if kind == "json" else kind}' for column, kind in columns.items()
    )
    return f"json_to_recordset(%s::json) AS given ({definitions})"


def value_of(column: str, kind: str) -> str:
    """Returns the expression for a column of `given`, converted to the type of the table's column."""
    return f'given."{column}"' + ("::json" if kind == "json" else "")


def parameters(columns: Columns, rows: Sequence[Sequence[Any]], *, single: bool = False) -> list[str | None]:
    """Returns the parameters of `given` for rows of values in the order of `columns`; JSON as bytes of its text."""
    return values(columns, rows[0]) if single else [_encoded(columns, rows)]


def values(columns: Columns, row: Iterable[Any]) -> list[str | None]:
    """Returns the parameters of a single row, all as text, because the type of a parameter must not depend on its
    value."""
    return [
        None if value is None else _WRITTEN.get(kind, str)(value)
        for kind, value in zip(columns.values(), row, strict=True)
    ]


def _encoded(columns: Columns, rows: Iterable[Sequence[Any]]) -> str:
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
    """Returns some columns of a table."""
    # SQLAlchemy's names are a subclass of str that orjson does not accept.
    return {str(name): type_name(table, name) for name in names}


@lru_cache(maxsize=256)
def update_of(table: Table, key: tuple[str, ...], always: frozenset[str], *, others: bool) -> str:
    """Returns the statement that updates rows, found by their key. The columns in `always` are set in every row. With
    `others` all other columns can be set too: the parameter `changes` of a row has a bit for each column to set.

    With `others` the statement is the same whichever columns change, and its cost grows with each column that it names.
    """
    columns = columns_of(table, tuple(column.name for column in table.columns))
    kinds = {column: kind for column, kind in columns.items() if others or column in key or column in always}
    assignments = ", ".join(
        _assigned(table, column, kind, None if column in always else 1 << bit)
        for bit, (column, kind) in enumerate(columns.items())
        if column in kinds and column not in key
    )
    source = from_item({**kinds, "changes": "int8"} if others else kinds)
    return f'UPDATE "{table.name}" SET {assignments} FROM {source} WHERE {_same(table, key)}'


@lru_cache(maxsize=1_024)
def update_of_single(table: Table, key: tuple[str, ...], names: tuple[str, ...]) -> str:
    """Returns the statement that sets the columns `names` of one row. Its parameters are `values`."""
    columns = columns_of(table, names)
    assignments = ", ".join(
        _assigned(table, column, kind, None) for column, kind in columns.items() if column not in key
    )
    return f'UPDATE "{table.name}" SET {assignments} FROM {from_item(columns, single=True)} WHERE {_same(table, key)}'


def _assigned(table: Table, column: str, kind: str, bit: int | None) -> str:
    """Returns the assignment of a column from `given`. With `bit`, rows whose `changes` lack it keep their value."""
    before = f'"{table.name}"."{column}"'
    value = (f"{before} + " if column in COUNTED else "") + value_of(column, kind)
    if bit is not None:
        value = f"CASE WHEN given.changes & {bit} = 0 THEN {before} ELSE {value} END"
    return f'"{column}" = {value}'


def _same(table: Table, key: tuple[str, ...]) -> str:
    return " AND ".join(f'"{table.name}"."{column}" = given."{column}"' for column in key)


def changes(table: Table, rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns the parameter of `update_of` for rows that have the key's columns and those that change."""
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
    """Returns the bits of these columns, and the functions that write values without a JSON form."""
    bits = sum(1 << bit for bit, column in enumerate(table.columns) if column.name in names)
    writers = [(name, _WRITTEN.get(type_name(table, name))) for name in names]
    return bits, [(name, write) for name, write in writers if write is not None]


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "json": lambda text: text if isinstance(text, str) else text.decode(),
    "bytea": lambda value: f"\\x{value.hex()}",
}
"""Types whose values have no JSON form that the database can read."""

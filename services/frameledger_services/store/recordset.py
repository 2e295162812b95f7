"""Many rows as one parameter: a JSON array that the database takes apart again.

Cheaper to make than an array for each column, and one statement whatever the number of rows, so that it stays
prepared. Values of `json` columns travel as the text that they are, inside a string, and come out to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import Table

from frameledger_services.store.copying import type_name


def given(table: Table, columns: Sequence[str]) -> str:
    """What stands behind FROM: rows named `given`, which the parameter holds that `encoded` made."""
    # As `text`, since the JSON inside of JSON would lose its spaces and could not hold an escaped NUL.
    typed = ((column, type_name(table, column)) for column in columns)
    definitions = ", ".join(f'"{column}" {"text" if kind == "json" else kind}' for column, kind in typed)
    return f"json_to_recordset(%s::json) AS given ({definitions})"


def value_of(table: Table, column: str) -> str:
    """A column of `given`, as the table takes it."""
    return f'given."{column}"' + ("::json" if type_name(table, column) == "json" else "")


def encoded(table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The parameter for rows given as values in the order of `columns`; JSON as bytes of its text."""
    # SQLAlchemy's names are a kind of str that orjson does not take.
    written = [(str(column), _WRITTEN.get(type_name(table, column))) for column in columns]
    return orjson.dumps(
        [
            {
                column: value if write is None or value is None else write(value)
                for (column, write), value in zip(written, row, strict=True)
            }
            for row in rows
        ]
    ).decode()


_WRITTEN: dict[str, Callable[[Any], str]] = {
    "json": lambda text: text if isinstance(text, str) else text.decode(),
    "bytea": lambda value: f"\\x{value.hex()}",
}
"""Types of which JSON has no values that the database would read."""

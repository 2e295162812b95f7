"""Rows into a table by binary COPY, the quickest way in: two and a half to five times quicker than INSERT."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from psycopg import AsyncConnection
from psycopg.adapt import Dumper
from psycopg.pq import Format
from sqlalchemy import BigInteger, Boolean, DateTime, Double, Integer, LargeBinary, Table, Text
from sqlalchemy.dialects.postgresql import JSON, UUID

_TYPES = (
    (BigInteger, "int8"),
    (Integer, "int4"),
    (Double, "float8"),
    (Boolean, "bool"),
    (DateTime, "timestamptz"),
    (LargeBinary, "bytea"),
    (UUID, "uuid"),
    (JSON, "json"),
    (Text, "text"),
)


class JsonText(bytes):
    """JSON that is text already."""


class JsonTextDumper(Dumper):
    """JSON as the text that it is: a column of type `json` keeps it to the byte, and nothing is encoded twice."""

    format = Format.BINARY
    oid = 114  # json; a constant of PostgreSQL

    def dump(self, obj: Any) -> bytes:
        text: bytes = obj
        return text


def prepare(connection: AsyncConnection[Any]) -> None:
    """Teach a connection to take JSON as text. Once for each connection, before the first `copy_in`."""
    connection.adapters.register_dumper(JsonText, JsonTextDumper)


async def copy_in(
    connection: AsyncConnection[Any], table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Add rows, given as values in the order of `columns`; JSON as bytes of its text.

    One statement, in the caller's transaction. Raises psycopg's errors; `UniqueViolation` for a row that is there.
    """
    statement, types = _statement(table, tuple(columns))
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(types)
        for row in rows:
            await copy.write_row(row)


@lru_cache(maxsize=256)
def _statement(table: Table, columns: tuple[str, ...]) -> tuple[str, list[str]]:
    names = ", ".join(f'"{column}"' for column in columns)
    types = [type_name(table, column) for column in columns]
    return f'COPY "{table.name}" ({names}) FROM STDIN (FORMAT BINARY)', types


@lru_cache(maxsize=1_024)
def type_name(table: Table, column: str) -> str:
    """What PostgreSQL calls the type of a column."""
    kind = table.c[column].type
    return next(name for sqlalchemy_type, name in _TYPES if isinstance(kind, sqlalchemy_type))

"""Inserting rows by binary COPY: two and a half to five times faster than INSERT."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus
from sqlalchemy import BigInteger, Boolean, DateTime, Double, Integer, LargeBinary, Table, Text
from sqlalchemy.dialects.postgresql import JSON, UUID

from frameledger_services.database_types import Connection

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
    """Encoded JSON."""


class JsonTextDumper(Dumper):
    """Dumps encoded JSON unchanged: a column of type `json` stores it byte for byte."""

    format = Format.BINARY
    oid = 114  # json; a constant of PostgreSQL

    def dump(self, obj: Any) -> bytes:
        text: bytes = obj
        return text


def prepare(connection: Connection) -> None:
    """Register the dumper of encoded JSON. Once for each connection, before the first `copy_in`."""
    connection.adapters.register_dumper(JsonText, JsonTextDumper)


async def copy_in(
    connection: Connection, table: Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows, given as values in the order of `columns`; JSON as bytes of its text.

    One statement, in the caller's transaction. Raises psycopg's errors; `UniqueViolation` for a row that exists. If it
    is cancelled, it may close the connection.
    """
    statement, types = _statement(table, tuple(columns))
    try:
        async with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                await copy.write_row(row)
    except asyncio.CancelledError:
        if connection.info.transaction_status == TransactionStatus.ACTIVE:
            # If it is cancelled while the statement begins and still waits for rows, no rollback can be sent.
            await connection.close()
        raise


@lru_cache(maxsize=256)
def _statement(table: Table, columns: tuple[str, ...]) -> tuple[str, list[str]]:
    names = ", ".join(f'"{column}"' for column in columns)
    types = [type_name(table, column) for column in columns]
    return f'COPY "{table.name}" ({names}) FROM STDIN (FORMAT BINARY)', types


@lru_cache(maxsize=1_024)
def type_name(table: Table, column: str) -> str:
    """Returns PostgreSQL's name of a column's type."""
    kind = table.c[column].type
    return next(name for sqlalchemy_type, name in _TYPES if isinstance(kind, sqlalchemy_type))

"""Reads times that Python has no value for, such as `infinity`, as the nearest one that it has.

We write none; somebody may by hand. psycopg raises `DataError` for them, which says of no row that it has one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from psycopg import DataError
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader

from frameledger_services.database_types import Connection

_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class _Text(TimestamptzLoader):
    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except DataError:
            written = bytes(data)
            return _FIRST if written.startswith(b"-") or written.endswith(b"BC") else _LAST


class _Binary(TimestamptzBinaryLoader):
    def load(self, data: Any) -> datetime:
        try:
            return super().load(data)
        except DataError:
            return _FIRST if int.from_bytes(data, signed=True) < 0 else _LAST


def read_from(connection: Connection) -> None:
    """Read them from this connection from now on. Called again it changes nothing. Times take longer to read then."""
    connection.adapters.register_loader("timestamptz", _Text)
    connection.adapters.register_loader("timestamptz", _Binary)

"""Reads times that Python cannot represent, such as `infinity`, as the nearest time that it can. Services never write
such times, but users may. psycopg raises a `DataError` for them that does not name the row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg import DataError
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader

from frameledger_services.database_types import Connection

_P = ParamSpec("_P")
_T = TypeVar("_T")

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


async def read(
    connection: Connection,
    function: Callable[Concatenate[Connection, _P], Awaitable[_T]],
    *arguments: _P.args,
    **options: _P.kwargs,
) -> _T:
    """Returns what `function` reads with a connection. If there is such a time, `function` is called again; from then
    on this connection reads such times, and reading any time takes longer."""
    try:
        return await function(connection, *arguments, **options)
    except DataError as error:
        if error.sqlstate is not None:
            raise
    connection.adapters.register_loader("timestamptz", _Text)
    connection.adapters.register_loader("timestamptz", _Binary)
    return await function(connection, *arguments, **options)

"""Rows of one conversation in the order of versions: in memory, or sorted by the server and read as far as needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from psycopg import AsyncServerCursor

from frameledger_services.database_types import Connection

Row = tuple[Any, ...]

FETCH_ROWS = 32
"""Number of rows that are fetched together if there may be millions, each as large as a record."""


class RowsByVersion(Protocol):
    """Rows of one conversation, ordered by the version in their first column."""

    async def upto(self, version: int) -> list[Row]:
        """Returns the rows up to this version that were not returned before."""
        ...

    async def close(self) -> None: ...


class RowsInMemory:
    """Rows that are in memory."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self._next = 0

    async def upto(self, version: int) -> list[Row]:
        first, rows = self._next, self._rows
        while self._next < len(rows) and rows[self._next][0] <= version:
            self._next += 1
        return rows[first : self._next]

    async def close(self) -> None:
        self._rows = []


class ServerRows:
    """Rows that the server keeps sorted and returns `FETCH_ROWS` at a time."""

    def __init__(
        self, connection: Connection, name: str, statement: str, parameters: Mapping[str, Any]
    ) -> None:
        self._connection = connection
        self._name = name
        self._statement = statement
        self._parameters = parameters
        self._cursor: AsyncServerCursor[Any] | None = None
        self._is_over = False
        self._read: list[Row] = []
        self._next = 0

    async def upto(self, version: int) -> list[Row]:
        rows: list[Row] = []
        while True:
            while self._next < len(self._read):
                row = self._read[self._next]
                if row[0] > version:
                    return rows
                rows.append(row)
                self._next += 1
            if not await self._fetch():
                return rows

    async def close(self) -> None:
        if self._cursor is not None:
            await self._cursor.close()

    async def _fetch(self) -> bool:
        if self._is_over:
            return False
        if self._cursor is None:
            self._cursor = self._connection.cursor(name=self._name)
            await self._cursor.execute(self._statement, self._parameters)
        self._read, self._next = await self._cursor.fetchmany(FETCH_ROWS), 0
        self._is_over = len(self._read) < FETCH_ROWS
        return bool(self._read)

"""A worker's connection for its statements: one at a time, waited for while the database is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection

from frameledger_services import database, logs, transient
from frameledger_services.claims.values import Connection
from frameledger_services.settings import Settings

STATEMENT_SECONDS = 10.0
"""A statement that takes longer is given up, with its connection: the server may be frozen."""

PAUSE_SECONDS = 0.2
"""Between two tries to reach the database."""

T = TypeVar("T")

_log = logs.get_logger("worker")


class Database:
    """Executes statements, each with a connection in autocommit, in the order in which they are asked for."""

    def __init__(self, settings: Settings, name: str, again: Callable[[Connection], Awaitable[None]]) -> None:
        """`again` is done first of all on each new connection but the first."""
        self._settings = settings
        self._name = name
        self._again = again
        self._connection: AsyncConnection[Any] | None = None
        self._was_connected = False
        self._one_at_a_time = asyncio.Lock()

    async def do(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        """What a statement answers. While the database is away it waits, says so once, and tries again: a statement may
        be executed a second time when the answer to the first was lost. It waits until it is cancelled."""
        said = False
        async with self._one_at_a_time:
            while True:
                try:
                    return await self._once(statement)
                except transient.DATABASE as error:
                    await self._hang_up()
                    if not said:
                        said = True
                        _log.warning(
                            "worker.waiting_for_database", worker=self._name, reason=transient.reason(error)
                        )
                    await asyncio.sleep(PAUSE_SECONDS)

    async def first(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        """The same, but it raises one of `transient.DATABASE` when the database is away."""
        async with self._one_at_a_time:
            return await self._once(statement)

    async def close(self) -> None:
        await self._hang_up()

    async def _once(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        async with asyncio.timeout(STATEMENT_SECONDS):
            if self._connection is None:
                self._connection = await connect(self._settings, self._name)
                if self._was_connected:
                    await self._again(self._connection)
                self._was_connected = True
            return await statement(self._connection)

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()


async def connect(settings: Settings, name: str) -> AsyncConnection[Any]:
    """A connection in autocommit. Raises one of `transient.DATABASE`."""
    return await database.connect(settings, f"frameledger {name}")

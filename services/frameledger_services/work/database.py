"""A worker's connection for its statements, which waits during an outage of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import psycopg

from frameledger_services import database, logs, transient
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings

STATEMENT_SECONDS = 10.0
"""Timeout of a statement, after which its connection is closed: the server may be frozen."""

PAUSE_SECONDS = 0.2
"""Seconds between two attempts to reach the database."""

T = TypeVar("T")

_log = logs.get_logger("worker")


class Database:
    """Executes statements one at a time, in the order of the calls, on a connection in autocommit."""

    def __init__(
        self, settings: Settings, name: str, on_reconnect: Callable[[Connection], Awaitable[None]]
    ) -> None:
        """`on_reconnect` is awaited first on every new connection except the first one."""
        self._settings = settings
        self._name = name
        self._on_reconnect = on_reconnect
        self._connection: Connection | None = None
        self._was_connected = False
        self._one_at_a_time = asyncio.Lock()

    async def do(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        """Returns the statement's result. During an outage it logs once and retries until it is cancelled. A statement
        whose answer was lost is executed a second time."""
        warned = False
        async with self._one_at_a_time:
            while True:
                try:
                    result = await self._once(statement)
                except transient.DATABASE as error:
                    await self._disconnect()
                    if not warned:
                        warned = True
                        _log.warning(
                            "worker.retrying_database", worker=self._name, reason=transient.reason(error)
                        )
                    await asyncio.sleep(PAUSE_SECONDS)
                else:
                    # Not for each connection: on a full disk they are made, and then the statement fails again.
                    if warned:
                        _log.info("worker.reconnected", worker=self._name)
                    return result

    async def first(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        """Returns the statement's result without retrying. Raises one of `transient.DATABASE` during an outage."""
        async with self._one_at_a_time:
            return await self._once(statement)

    async def close(self) -> None:
        await self._disconnect()

    async def _once(self, statement: Callable[[Connection], Awaitable[T]]) -> T:
        async with answered_within(STATEMENT_SECONDS):
            if self._connection is None:
                self._connection = await connect(self._settings, self._name)
                if self._was_connected:
                    await self._on_reconnect(self._connection)
                self._was_connected = True
            return await statement(self._connection)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                await connection.close()


@asynccontextmanager
async def answered_within(seconds: float) -> AsyncIterator[None]:
    """Limits the block to this time. Raises `TimeoutError`, whose message says what did not answer."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimeoutError(
            f"PostgreSQL did not answer within {seconds:g} s. It may be frozen, or somebody has locked a table."
        ) from error


async def connect(settings: Settings, name: str) -> Connection:
    """Returns a connection in autocommit. Raises one of `transient.DATABASE`."""
    return await database.connect(settings, f"frameledger {name}", role="frameledger_worker")

"""A few connections to the database, for reading; opened when they are needed, and reused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from frameledger.errors import ConfigurationError, FrameledgerError, TransientError
from frameledger_services import access, database
from frameledger_services.database_types import Connection
from frameledger_services.missing_permission import Role
from frameledger_services.settings import Settings
from frameledger_services.settings_masking import without_password
from frameledger_services.store import extreme_times, schema

MAX_CONNECTIONS = 4
READ_SECONDS = 30.0

SESSION = {"jit": "off"}
"""Settings of the sessions. Reads take some milliseconds, and compiling a statement takes hundreds. PostgreSQL would
compile a statement whose cost it overestimates, such as the one for many followers, at each tick."""

LONG_SESSION = {**SESSION, **database.UNLIMITED, "idle_in_transaction_session_timeout": "0"}
"""Settings of a session that reads all conversations, or a whole one, as for a root, a proof or an export. Its
transaction waits while somebody reads the output slowly."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DatabaseError(FrameledgerError):
    """The database does not answer, or returns an error. The message names the database and contains its error.

    Remedy: `DatabaseUnavailableError`: try again. `DatabaseRefusedError`: see there.
    """


class DatabaseUnavailableError(DatabaseError, TransientError):
    """The database cannot be reached, does not answer in time, or is temporarily not the primary.

    Remedy: Try again; if the error persists, check that it runs at `FRAMELEDGER_DATABASE_URL`.
    """


class DatabaseRefusedError(DatabaseError, ConfigurationError):
    """The database refuses a statement, for instance because the user lacks a permission.

    Remedy: Grant the user the permissions that the message names, or configure another database address.
    """


def has_no_answer(error: psycopg.Error) -> bool:
    """Returns whether this error is libpq's and not the server's: there is no server, or it refuses the connection."""
    return isinstance(error, psycopg.OperationalError) and error.sqlstate is None


def failure(what: str, error: psycopg.Error) -> DatabaseError:
    """Returns the `DatabaseError` for an error of psycopg. `what` is the operation that failed."""
    # Imported on failure: it imports aiokafka, and a command that only reads starts without that.
    from frameledger_services import transient

    kind = DatabaseUnavailableError if transient.is_transient(error) else DatabaseRefusedError
    message = str(error).strip()
    if has_no_answer(error):
        message += "\nIs it running (`frameledger status`), and is FRAMELEDGER_DATABASE_URL right?"
    return kind(f"{what}: {message}")


class Connections:
    """A few connections of one event loop. Nothing is opened before the first `read`."""

    def __init__(
        self,
        settings: Settings,
        name: str = "frameledger-client",
        *,
        most: int = MAX_CONNECTIONS,
        within: float | None = None,
        free_within: float | None = None,
        role: Role = "frameledger_reader",
    ) -> None:
        """`name` is the connections' `application_name`, `most` their maximum number, and `within` the seconds that a
        read may take, including the wait for a free connection (default: `READ_SECONDS`). It waits at most
        `free_within` of these for a free connection. `role` names the permissions that its user needs for its other
        work."""
        self._settings = settings
        self._connect = partial(connect, settings, name, role)
        self._free = asyncio.Semaphore(most)
        self._within = READ_SECONDS if within is None else within
        self._free_within = free_within
        self._idle: list[Connection] = []
        self._is_closed = False

    async def read(
        self,
        function: Callable[Concatenate[Connection, _P], Awaitable[_T]],
        *arguments: _P.args,
        **options: _P.kwargs,
    ) -> _T:
        """Returns what `function` reads with a connection. It is called again if a connection turns out to be dead.

        Raises `DatabaseUnavailableError`, also if the read took too long, `DatabaseRefusedError`, and
        `schema.SchemaError` for a database of another release.
        """
        try:
            async with asyncio.timeout(self._within), self._slot():
                while True:
                    was_idle = bool(self._idle)
                    try:
                        async with self._connection() as connection:
                            return await extreme_times.read(connection, function, *arguments, **options)
                    except psycopg.OperationalError:
                        # An idle connection notices only now that the server was restarted or replaced, and the other
                        # idle ones are in the same state.
                        if not was_idle:
                            raise
                        await self._close_idle()
        except psycopg.Error as error:
            raise failure(self._name(), error) from error
        except TimeoutError as error:
            await self._close_idle()
            raise DatabaseUnavailableError(
                f"{self._name()} did not answer within {self._within:.0f} s."
            ) from error

    async def close(self) -> None:
        """Close all connections; one that is in use closes when its read ends. A later `read` opens a connection and
        closes it. Safe to call twice."""
        self._is_closed = True
        await self._close_idle()

    async def _close_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Hold one of as many slots as there may be connections. Raises `DatabaseUnavailableError`."""
        try:
            async with asyncio.timeout(self._free_within if self._free.locked() else None):
                await self._free.acquire()
        except TimeoutError as error:
            raise DatabaseUnavailableError(
                f"{self._name()}: no connection was free within {self._free_within:g} s."
            ) from error
        try:
            yield
        finally:
            self._free.release()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        connection = self._idle.pop() if self._idle else await self._connect()
        try:
            yield connection
        finally:
            if connection.info.transaction_status == TransactionStatus.IDLE and not self._is_closed:
                self._idle.append(connection)
            else:
                await connection.close()

    def _name(self) -> str:
        return f"The database {without_password(access.database_address(self._settings))}"


async def connect(
    settings: Settings,
    name: str = "frameledger-client",
    role: Role = "frameledger_reader",
    session: Mapping[str, str] = SESSION,
) -> Connection:
    """Returns a read-only connection in autocommit to a database whose schema was checked, with these session settings.
    Raises psycopg's errors and `schema.SchemaError`."""
    connection = await database.connect(settings, name, session, role=role)
    try:
        await schema.check(connection)
        await connection.set_read_only(True)
        # All statements of one transaction read one snapshot.
        await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    except BaseException:
        await connection.close()
        raise
    return connection

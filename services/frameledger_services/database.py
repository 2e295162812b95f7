"""The one way to connect to the database: every connection has bounds, and notices a server that is silent.

A server that dies says so. One that is frozen, or behind a network that drops packets, does not, and TCP waits for it
for minutes. So the kernel is given bounds, and a statement that is not answered for a while is asked about on a second
connection: a server that works on it may take as long as it likes, from any other we hang up. Who is hung up on gets a
`psycopg.OperationalError`, as from a server that died, and connects again; with several hosts in the address the next
one is asked after `connect_seconds`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from frameledger.errors import ConfigurationError
from frameledger_services import access
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings

KERNEL: dict[str, str | int] = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 7_000,
}
"""libpq's parameters: after 7 s without a sign of the other machine a connection is broken."""

MOST_CONNECT_SECONDS = 5
LEAST_CONNECT_SECONDS = 2
"""libpq takes less for this."""

SILENT_SECONDS = 4.0
"""After so long without an answer to a statement we ask whether the server works on it, and again after as long."""

ASK_SECONDS = 3.0
CANCEL_SECONDS = 2.0

LISTENERS_ASK_SECONDS = 5.0
"""Who only listens asks the server for nothing after so long without a word, so that a silent one is noticed."""

RV = TypeVar("RV")


class PoolerError(ConfigurationError, psycopg.NotSupportedError):
    """The database's address leads to a pooler that gives the statements of a session to changing sessions of the
    server.

    Remedy: Let the pooler pool sessions (PgBouncer: `pool_mode=session`), or give the address of PostgreSQL itself.
    """

    def __init__(self) -> None:
        super().__init__(
            "The database's address leads to a pooler in transaction mode, which takes away what sessions are for: "
            "prepared statements, LISTEN, settings and who holds a partition. Let it pool sessions (pgbouncer: "
            "pool_mode=session), or connect to PostgreSQL itself."
        )


def address(settings: Settings, name: str, **parameters: str | int) -> str:
    """A libpq address with bounds, where the database shows this name. What the address of the settings says itself
    wins over all of it but the name. Raises `SettingsError` when there is none."""
    given = conninfo_to_dict(access.database_address(settings))
    hosts = _hosts(given)
    bounds: dict[str, Any] = {
        **KERNEL,
        "connect_timeout": connect_seconds(settings.work_lease_secs, hosts),
        **({"target_session_attrs": "read-write"} if hosts > 1 else {}),
        **parameters,
    }
    return make_conninfo("", **{**bounds, **given, "application_name": name})


def connect_seconds(lease: float, hosts: int) -> int:
    """For one host: so that all others are tried within a lease of that many seconds, if that is possible at all."""
    return max(LEAST_CONNECT_SECONDS, min(MOST_CONNECT_SECONDS, int(lease / (hosts + 0.5))))


async def connect(
    settings: Settings, name: str, session: Mapping[str, str] | None = None, **parameters: str | int
) -> GuardedConnection:
    """A connection in autocommit, whose session has these settings unless the address says otherwise in `options`.

    Raises `psycopg.OperationalError` when no host of the address takes it, and `PoolerError`.
    """
    where = address(settings, name, **parameters)
    connection = await GuardedConnection.connect(where, autocommit=True)
    try:
        await connection.begin(where, session or {})
    except BaseException:
        await connection.close()
        raise
    return connection


class GuardedConnection(AsyncConnection[Any]):
    """A connection that hangs up on a server which is silent and does not work for it. Made by `connect`."""

    _where = ""
    _backend = 0
    _is_silent = False

    async def begin(self, where: str, session: Mapping[str, str]) -> None:
        """Set the session's settings, and learn which process of the server it is. Poolers need no `options` so."""
        info = self.info
        self._where = make_conninfo(
            where, host=info.host, hostaddr=info.hostaddr or None, port=info.port, target_session_attrs="any"
        )
        chosen = conninfo_to_dict(where).get("options") or ""
        settings = {name: value for name, value in session.items() if f"{name}=" not in str(chosen)}
        cursor = await self.execute(_BEGIN, (list(settings), list(settings.values())))
        ((self._backend, _),) = await cursor.fetchall()
        await _refuse_pooler(self, where)

    async def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """psycopg waits here for every answer."""
        loop = asyncio.get_running_loop()
        asking: asyncio.Task[None] | None = None

        def ask() -> None:
            nonlocal asking
            asking = loop.create_task(self._ask_again_and_again())

        timer = loop.call_later(SILENT_SECONDS, ask)
        try:
            return await super().wait(gen, *arguments, **options)
        except psycopg.OperationalError as error:
            if self._is_silent:
                raise psycopg.OperationalError(
                    f"{self._shown()} did not answer for {SILENT_SECONDS:g} s, and does not work on it"
                ) from error
            raise
        finally:
            timer.cancel()
            if asking is not None:
                asking.cancel()

    async def cancel_safe(self, *, timeout: float = CANCEL_SECONDS) -> None:
        """Ask the server to give up a statement. If it is silent, hang up: nobody is to wait for it."""
        try:
            await super().cancel_safe(timeout=min(timeout, CANCEL_SECONDS))
        except psycopg.Error:
            self._hang_up()
            raise

    async def _ask_again_and_again(self) -> None:
        while self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            if not self._backend or not await self._is_worked_for():
                self._is_silent = True
                self._hang_up()
                return
            await asyncio.sleep(SILENT_SECONDS)

    async def _is_worked_for(self) -> bool:
        try:
            async with (
                asyncio.timeout(ASK_SECONDS),
                await AsyncConnection.connect(self._where, autocommit=True) as other,
            ):
                return await (await other.execute(_IS_ACTIVE, (self._backend,))).fetchone() is not None
        except (psycopg.Error, TimeoutError):
            return False

    def _hang_up(self) -> None:
        """End the connection for libpq too, which finds it closed by the other side."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    def _shown(self) -> str:
        return f"PostgreSQL at {self.info.host}:{self.info.port}"


async def ping(connection: Connection) -> None:
    """Have the server answer. Raises `psycopg.OperationalError` if it does not."""
    await connection.execute("SELECT")


async def backend(connection: Connection) -> int:
    """The process of the server that executes this statement."""
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    assert row is not None
    return int(row[0])


_sessions: set[str] = set()
"""Addresses at which this process found that sessions are sessions."""


async def _refuse_pooler(connection: GuardedConnection, where: str) -> None:
    """Two connections that are open at once are two sessions. A pooler in transaction mode gives both of them the
    session that is free, or the first one another session while the second has it."""
    if where in _sessions:
        return
    before = await backend(connection)
    try:
        # Of ours: it hangs up on a server that falls silent now.
        async with await GuardedConnection.connect(where) as other:
            others = await backend(other)
            after = await backend(connection)
    except psycopg.OperationalError:
        # The server fell silent, or there is no room for another one now. The next connection finds out.
        return
    if before == others or before != after:
        raise PoolerError
    _sessions.add(where)


def _hosts(given: Mapping[str, Any]) -> int:
    return max(len(str(given.get(name) or "").split(",")) for name in ("host", "hostaddr"))


_BEGIN = """
    SELECT pg_backend_pid(), array(
        SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS chosen (name, value)
    )
"""

_IS_ACTIVE = "SELECT FROM pg_stat_activity WHERE pid = %s AND state = 'active'"

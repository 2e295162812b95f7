"""Connects to the database. Every connection has timeouts and detects a server that does not respond.

A server that dies closes its connections. A server that is frozen, or behind a network that drops packets, does not,
and TCP waits for minutes. So the kernel gets timeouts, and if a statement is not answered for a while, a second
connection checks whether the server is executing it. If it is, the statement may take as long as it needs; otherwise
the connection is closed. The caller gets a `psycopg.OperationalError`, as if the server had died, and reconnects. If
the address has several hosts, the next one is tried after `connect_seconds`.

A server that refuses the second connection, for instance because it has none left, is alive, but the state of the
statement is unknown. If the first connection were closed, no new one would be accepted either. So the statement keeps
its connection, and the server is asked again later.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, AsyncServerCursor
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from frameledger.errors import ConfigurationError
from frameledger_services import access, descriptors
from frameledger_services.database_types import Connection
from frameledger_services.database_wait import RegisteredConnection, while_alive
from frameledger_services.missing_permission import Role, lacks
from frameledger_services.settings import Settings

KERNEL: dict[str, str | int] = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 2,
    "tcp_user_timeout": 7_000,
}
"""libpq parameters: a connection fails after 7 s without a response from the other machine."""

MAX_CONNECT_SECONDS = 5
MIN_CONNECT_SECONDS = 2
"""libpq rounds smaller values up to this."""

SILENT_SECONDS = 4.0
"""After this time without an answer to a statement, and repeatedly, the server is asked whether it is executing it."""

ASK_SECONDS = 3.0
CANCEL_SECONDS = 2.0

UNLIMITED: Mapping[str, str] = {
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
}
"""Session settings of projectors and of commands that fold or check whole conversations. Limits that an administrator
set for the role or the database would abort a long statement each time it is retried, or end a session that owns
partitions. Connections that fall silent are detected anyway."""

BESIDE_PROJECTORS: Mapping[str, str] = {**UNLIMITED, "idle_in_transaction_session_timeout": "10s"}
"""Session settings of commands whose transactions projectors may wait for. If such a command stalls in one, PostgreSQL
ends its session after this time, and the projectors continue."""

READABLE: Mapping[str, str] = {
    "datestyle": "ISO",
    "default_transaction_isolation": "read committed",
    "standard_conforming_strings": "on",
}
"""Settings of every session, whatever the environment, the address, the role or the database specify: psycopg reads
only this form of times, statements that wait for each other are written for this isolation level, and those with a
backslash for one that is an ordinary character."""

LISTENERS_ASK_SECONDS = 5.0
"""A connection that only listens sends an empty query after this time without a notification, to detect a dead
server."""

RV = TypeVar("RV")


class PoolerError(ConfigurationError, psycopg.NotSupportedError):
    """The database address is that of a connection pooler in transaction mode.

    Remedy: Configure the pooler for session pooling (PgBouncer: `pool_mode=session`), or use the address of PostgreSQL
    itself.
    """

    def __init__(self) -> None:
        super().__init__(
            "The database address is that of a connection pooler in transaction mode. Frameledger needs sessions for "
            "prepared statements, LISTEN, settings and the ownership of partitions. Configure the pooler for session "
            "pooling (pgbouncer: pool_mode=session), or connect to PostgreSQL itself."
        )


def address(settings: Settings, name: str, **parameters: str | int) -> str:
    """Returns a libpq address with timeouts and this application name. Parameters in the address of the settings take
    precedence, except for the name and the encoding. Raises `SettingsError` if no database is configured."""
    configured = conninfo_to_dict(access.database_address(settings))
    hosts = _hosts(configured)
    bounds: dict[str, Any] = {
        **KERNEL,
        "connect_timeout": connect_seconds(settings.work_lease_secs, hosts),
        **({"target_session_attrs": "read-write"} if hosts > 1 else {}),
        **parameters,
    }
    # An encoding of the address or the environment, such as Latin-1, has no place for most conversations.
    ours = {"application_name": name, "client_encoding": "utf8"}
    return make_conninfo("", **{**bounds, **configured, **ours})


def connect_seconds(lease: float, hosts: int) -> int:
    """Returns the connect timeout for one host, so that all hosts are tried within one lease if possible."""
    return max(MIN_CONNECT_SECONDS, min(MAX_CONNECT_SECONDS, int(lease / (hosts + 0.5))))


async def connect(
    settings: Settings,
    name: str,
    session: Mapping[str, str] | None = None,
    *,
    role: Role = "frameledger_reader",
    **parameters: str | int,
) -> GuardedConnection:
    """Returns a connection in autocommit. Its session has those of these settings that the server knows, unless the
    address sets them in `options`, and always those of `READABLE`. `role` is the role that its user needs for the
    caller's work: if the user lacks a permission for a statement, `MissingPermissionError` names the role.

    Raises `psycopg.OperationalError` if no host of the address accepts the connection, and `PoolerError`.
    """
    where = address(settings, name, **parameters)
    try:
        connection = await GuardedConnection.connect(where, autocommit=True)
    except psycopg.OperationalError as error:
        if error.sqlstate is None and (shortage := descriptors.shortage()):
            raise psycopg.OperationalError(
                f"No connection to PostgreSQL could be opened. {shortage}"
            ) from error
        raise
    try:
        await connection.begin(where, session or {}, role)
    except BaseException:
        await connection.close()
        raise
    return connection


class GuardedConnection(RegisteredConnection):
    """A connection that closes if the server neither responds nor executes its statement. Created by `connect`."""

    _where = ""
    _backend = 0
    _is_silent = False
    _role: Role = "frameledger_reader"
    _user = ""
    _waits_since: float | None = None
    """When the current wait for an answer began, by the event loop's clock; None between statements."""

    _silence_timer: asyncio.TimerHandle | None = None
    """One for all statements, since a timer for each would nearly always be cancelled."""

    _timer_loop: asyncio.AbstractEventLoop | None = None
    _probe: asyncio.Task[None] | None = None

    async def begin(self, where: str, session: Mapping[str, str], role: Role = "frameledger_reader") -> None:
        """Set the session's settings and read its server process. Not with `options`, which poolers do not support."""
        self.server_cursor_factory = _ServerCursor
        info = self.info
        self._role, self._user = role, info.user
        self._where = make_conninfo(
            where, host=info.host, hostaddr=info.hostaddr or None, port=info.port, target_session_attrs="any"
        )
        chosen = conninfo_to_dict(where).get("options") or ""
        settings = {name: value for name, value in session.items() if f"{name}=" not in str(chosen)}
        settings |= READABLE
        cursor = await self.execute(_BEGIN, (list(settings), list(settings.values())))
        ((self._backend, _),) = await cursor.fetchall()
        await _refuse_pooler(self, where)

    async def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Called by psycopg to wait for any answer."""
        loop = asyncio.get_running_loop()
        self._waits_since = loop.time()
        if self._silence_timer is None or self._timer_loop is not loop:
            self._check_silence_at(loop, self._waits_since + SILENT_SECONDS)
        try:
            return await super().wait(gen, *arguments, **options)
        except psycopg.OperationalError as error:
            if self._is_silent:
                raise psycopg.OperationalError(
                    f"{self._shown()} did not respond for {SILENT_SECONDS:g} s and is not executing the statement"
                ) from error
            raise
        except psycopg.errors.InsufficientPrivilege as error:
            raise lacks(error, self._user, self._role) from error
        finally:
            self._waits_since = None
            if self._probe is not None:
                self._probe.cancel()
                self._probe = None

    def _check_silence_at(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        # The timer does not keep the connection alive: one that is forgotten open is closed, with a warning.
        self._silence_timer = loop.call_at(due, while_alive(self._check_silence))
        self._timer_loop = loop

    def _check_silence(self) -> None:
        """Ask the server if it has not answered for a while."""
        loop = asyncio.get_running_loop()
        if self._timer_loop is not loop:
            # A timer from before the connection was used in another event loop.
            return
        self._silence_timer = None
        if self._waits_since is None:
            return
        due = self._waits_since + SILENT_SECONDS
        if loop.time() < due:
            self._check_silence_at(loop, due)
        else:
            self._probe = loop.create_task(self._ask_repeatedly())

    async def close(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None
        await super().close()

    async def __aexit__(self, *raised: Any) -> None:
        """Close it even if the task is cancelled while it commits or rolls back; psycopg's own connection would stay
        open."""
        try:
            await super().__aexit__(*raised)
        finally:
            await self.close()

    async def cancel_safe(self, *, timeout: float = CANCEL_SECONDS) -> None:
        """Cancel the statement. If the server does not respond, close the connection."""
        try:
            await super().cancel_safe(timeout=min(timeout, CANCEL_SECONDS))
        except psycopg.Error:
            self._shut_down_socket()
            raise

    async def _ask_repeatedly(self) -> None:
        while self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            if not self._backend or not await self._is_executing():
                self._is_silent = True
                self._shut_down_socket()
                return
            await asyncio.sleep(SILENT_SECONDS)

    async def _is_executing(self) -> bool:
        """Whether the server executes the statement, or is alive and accepts no connection that could ask."""
        try:
            async with (
                asyncio.timeout(ASK_SECONDS),
                await AsyncConnection.connect(self._where, autocommit=True) as other,
            ):
                return await (await other.execute(_IS_ACTIVE, (self._backend,))).fetchone() is not None
        except (TimeoutError, psycopg.errors.ConnectionTimeout):
            return False
        except psycopg.OperationalError:
            return await self._is_alive()
        except psycopg.Error:
            return False

    async def _is_alive(self) -> bool:
        """Whether the server answers at all, even with a refusal. psycopg's error shows a refusal only as text in the
        server's language, and libpq's ping blocks the process. A server answers this request without authentication."""
        with suppress(OSError, psycopg.Error, TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                reader, writer = await self._open_socket()
                with closing(writer):
                    writer.write(_SSL_REQUEST)
                    return await reader.read(1) != b""
        return False

    async def _open_socket(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.info.hostaddr or self.info.host, self.info.port
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        if host.startswith("@"):  # in Linux's abstract namespace
            return await asyncio.open_unix_connection(f"\0{host[1:]}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    def _shut_down_socket(self) -> None:
        """Shut down the socket. libpq then finds the connection closed by the server."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.fileno())) as same:
            same.shutdown(socket.SHUT_RDWR)

    def _shown(self) -> str:
        return f"PostgreSQL at {self.info.host}:{self.info.port}"


class _ServerCursor(AsyncServerCursor[Any]):
    """A server-side cursor that is also closed here if the connection turns out to be lost when the server is told.
    psycopg's own cursor would stay open, and Python warn about it."""

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await AsyncCursor.close(self)


async def ping(connection: Connection) -> None:
    """Execute an empty statement. Raises `psycopg.OperationalError` if the server does not respond."""
    await connection.execute("SELECT")


async def backend(connection: Connection) -> int:
    """Returns the process id of the server process that executes this statement."""
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    assert row is not None
    return int(row[0])


_sessions: set[str] = set()
"""Addresses that this process has checked for poolers."""


async def _refuse_pooler(connection: GuardedConnection, where: str) -> None:
    """Raise `PoolerError` for a pooler in transaction mode. Two open connections must be two sessions: such a pooler
    gives both of them the same free session, or moves the first to another session while the second uses it."""
    if where in _sessions:
        return
    before = await backend(connection)
    try:
        # A guarded connection: it closes if the server stops responding now.
        async with await GuardedConnection.connect(where) as other:
            others = await backend(other)
            after = await backend(connection)
    except psycopg.OperationalError:
        # The server stopped responding or accepts no more connections. The next connection checks again.
        return
    if before == others or before != after:
        raise PoolerError
    _sessions.add(where)


def _hosts(parameters: Mapping[str, Any]) -> int:
    return max(len(str(parameters.get(name) or "").split(",")) for name in ("host", "hostaddr"))


# A setting that this server does not know is omitted: `transaction_timeout` is new in PostgreSQL 17.
_BEGIN = """
    SELECT pg_backend_pid(), array(
        SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS chosen (name, value)
        WHERE current_setting(name, true) IS NOT NULL
    )
"""

_SSL_REQUEST = bytes.fromhex("00000008 04d2162f")
"""A request of PostgreSQL's protocol that asks whether the server supports TLS. It answers with one character, before
anything else."""

# With `track_activities` off the server does not know what its sessions do.
_IS_ACTIVE = "SELECT FROM pg_stat_activity WHERE pid = %s AND state IN ('active', 'disabled')"

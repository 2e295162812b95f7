"""Databases for tests: each test gets one of its own, a copy of a template that the migrations made once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from os import getpid

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.bounds import ON_SERVERS
from tests.support.polling import look_again

_numbers = count(1)
_connections: dict[str, psycopg.Connection] = {}
"""By the address of their server."""


@pytest.fixture(scope="session")
def migrated_template(database_server: str) -> Iterator[str]:
    """The name of a migrated database, which is copied and never written to."""
    # It imports Alembic and SQLAlchemy, which takes half a second, and a run of unit tests needs neither.
    from frameledger_services.store import migration

    with made(database_server) as (name, address):
        migration.migrate(address)
        yield name


@pytest.fixture
def database(database_server: str, migrated_template: str) -> Iterator[str]:
    """The address of an empty, migrated database for this test only, as its owner and the server's superuser."""
    with made(database_server, template=migrated_template) as (_, address):
        yield address


@pytest.fixture(scope="session")
def shared_database(database_server: str, migrated_template: str) -> Iterator[str]:
    """The address of a migrated database for tests that leave nothing behind, because a copy takes a third of a
    second."""
    with made(database_server, template=migrated_template) as (_, address):
        yield address


@pytest.fixture
def transaction(shared_database: str) -> Iterator[psycopg.Connection]:
    """A connection in a transaction that is rolled back after the test. A statement that is expected to fail needs a
    savepoint."""
    with psycopg.connect(shared_database) as connection, connection.transaction(force_rollback=True):
        yield connection


@pytest.fixture
def empty_database(database_server: str) -> Iterator[str]:
    """The address of an empty database without tables, for this test only."""
    with made(database_server) as (_, address):
        yield address


@pytest.fixture
def make_database(database_server: str) -> Iterator[Callable[..., str]]:
    """Creates more databases for this test: `make_database(template=..., encoding=..., owner=...)` returns an
    address."""
    with ExitStack() as kept:
        yield lambda **options: kept.enter_context(made(database_server, **options))[1]


def without_takeover_delay(address: str) -> None:
    """Make workers that register in this database from now on count as connected for a day. Otherwise a worker waits
    for a lease before it considers others dead: a test that waits for a takeover would need short leases, which a live
    worker may lose on a busy machine."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "ALTER TABLE workers ALTER COLUMN connected_at SET DEFAULT clock_timestamp() - interval '1 day'"
        )


def dies(address: str, pid: int) -> None:
    """Make the heartbeats of a killed process older than its lease, so that other workers do not wait for it to end."""
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(
            "UPDATE workers SET heartbeat_at = heartbeat_at - make_interval(secs => lease_secs) WHERE pid = %s",
            [pid],
        )


@contextmanager
def made(
    server: str, template: str = "template0", encoding: str = "UTF8", owner: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yields the name and the address of a database that exists during the block."""
    # With the process id, because two runs may use one server.
    name = f"frameledger_test_{getpid()}_{next(_numbers)}"
    options = [
        sql.SQL("TEMPLATE {}").format(sql.Identifier(template)),
        # Copies files. The default also writes each page to the WAL, which takes half as long again.
        sql.SQL("STRATEGY FILE_COPY"),
        sql.SQL("ENCODING {}").format(encoding),
        *([sql.SQL("OWNER {}").format(sql.Identifier(owner))] if owner else []),
        # A server with another locale would refuse another encoding.
        *([sql.SQL("LOCALE 'C' LOCALE_PROVIDER libc")] if encoding != "UTF8" else []),
    ]
    _administration(server).execute(
        sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(name), sql.SQL(" ").join(options))
    )
    try:
        yield name, make_conninfo(server, dbname=name)
    finally:
        _administration(server).execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _administration(server: str) -> psycopg.Connection:
    """This process's connection to the server, reopened if it was lost. Connecting takes half as long as creating a
    database."""
    kept = _connections.get(server)
    if kept is not None:
        with suppress(psycopg.OperationalError):
            kept.execute("SELECT 1")
            return kept
        kept.close()
    _connections[server] = psycopg.connect(server, autocommit=True)
    return _connections[server]


async def until_somebody_waits(address: str) -> None:
    """Return when a session of this database waits for a lock of another one."""
    async with (
        asyncio.timeout(ON_SERVERS),
        await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
    ):
        while True:
            cursor = await connection.execute(
                "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if await cursor.fetchone() is not None:
                return
            await look_again()


def close() -> None:
    """Close the connections that created databases."""
    while _connections:
        _connections.popitem()[1].close()

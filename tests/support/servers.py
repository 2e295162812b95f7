"""The real servers of a test run: each is started once, when a test first asks for it or, with xdist, when the run
begins (`tests.shared_broker`), and is gone afterwards.

Gone also after Ctrl-C (pytest ends its fixtures then) and, on Linux, after pytest was killed: the kernel tells
the servers. A test gets a database of its own and topics of its own, never a server of its own, unless it
breaks one.
"""

import asyncio
import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import nullcontext

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from psycopg import sql
from tests.support import databases, run_broker
from tests.support.run_broker import Broker
from tests.support.topic_prefixes import of_this_process

from frameledger_services.embedded import postgres as embedded_postgres
from frameledger_services.embedded.postgres import PostgresServer

_brokers: list[Broker] = []
"""The one that this process uses, once a test has asked for it."""


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """aiokafka leaves a connection behind whose making is cancelled. Found at the end of the module that is nothing;
    found later it fails whatever test runs then.

    Topics are deleted: every five seconds a broker counts the rates of each that was ever used, which of a run's
    thousand was a sixth of all that it cost."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    for broker in _brokers:
        asyncio.run(_delete_topics(broker.bootstrap_servers))


async def _delete_topics(bootstrap_servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.delete_topics(
            [one for one in await admin.list_topics() if one.startswith(of_this_process())]
        )
    finally:
        await admin.close()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The embedded PostgreSQL, with `dsn` as its superuser. Processes are killed here, the machine is not: no fsync."""
    folder = tmp_path_factory.mktemp("postgres")
    quickly = {"fsync": "off", "scram_iterations": "1"}
    with embedded_postgres.running(folder, settings=quickly) as server:
        hash_the_password_once(server)
        yield server


def hash_the_password_once(server: PostgresServer) -> None:
    """Set the password again, hashed once. By default a client hashes it 4096 times for each connection, as the cluster
    did when it was created: three quarters of the time to connect, for tens of thousands of connections."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        role, password = sql.Identifier(connection.info.user), sql.Literal(connection.info.password)
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(role, password))


@pytest.fixture(scope="session")
def database_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the database server under test: TEST_DATABASE_URL, a superuser's, or the embedded one."""
    given = os.environ.get("TEST_DATABASE_URL")
    yield given or request.getfixturevalue("postgres").dsn
    databases.close()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Broker]:
    """The embedded Kafka: that of the whole run, or of this process if it runs alone."""
    of_this_run = run_broker.of_this_run(pytestconfig)
    own = run_broker.running(tmp_path_factory.mktemp("kafka"), pytestconfig)
    with nullcontext(of_this_run) if of_this_run is not None else own as broker:
        _brokers.append(broker)
        yield broker
        _brokers.remove(broker)

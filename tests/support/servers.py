"""The real servers of a test run. Each is started once: when a test first needs it or, with xdist, when the run begins
(`tests.shared_broker`). All are stopped at the end.

They also end after Ctrl-C, when pytest tears down its fixtures, and, on Linux, after pytest was killed, because the
kernel signals them. Each test has its own database and topics, but a server of its own only if it breaks it.
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
"""The broker that this process uses, once a test has needed it."""


@pytest.fixture(scope="module", autouse=True)
def collect_garbage() -> Iterator[None]:
    """Collect garbage and delete topics at the end of a module.

    aiokafka leaves a connection behind if connecting is cancelled. Its `ResourceWarning` is ignored here; later it
    would fail an unrelated test. Topics are deleted because a broker updates the metrics of each one every five
    seconds, which for the thousand topics of a run was a sixth of its cost."""
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
    """The embedded PostgreSQL, with `dsn` as its superuser. Without fsync, because tests kill processes and not the
    machine."""
    folder = tmp_path_factory.mktemp("postgres")
    quickly = {"fsync": "off", "scram_iterations": "1"}
    with embedded_postgres.running(folder, settings=quickly) as server:
        hash_the_password_once(server)
        yield server


def hash_the_password_once(server: PostgresServer) -> None:
    """Set the password again with one iteration of its hash. The default is 4096 iterations for each connection, which
    is three quarters of the time to connect, for tens of thousands of connections."""
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
    """The embedded Kafka of the whole run, or of this process if it runs alone."""
    of_this_run = run_broker.of_this_run(pytestconfig)
    own = run_broker.running(tmp_path_factory.mktemp("kafka"), pytestconfig)
    with nullcontext(of_this_run) if of_this_run is not None else own as broker:
        _brokers.append(broker)
        yield broker
        _brokers.remove(broker)

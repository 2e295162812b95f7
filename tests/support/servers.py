"""The real servers of a test run: each is started when a test first asks for it, once, and is gone afterwards.

Gone also after Ctrl-C (pytest ends its fixtures then) and, on Linux, after pytest was killed: the kernel tells
the servers. A test gets a database of its own and topics of its own, never a server of its own, unless it
breaks one.
"""

import asyncio
import gc
import os
import warnings
from collections.abc import Iterator

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from psycopg import sql
from tests.support import databases, java_archive
from tests.support.formatted import formatted

from frameledger_services.embedded import kafka as embedded_kafka
from frameledger_services.embedded import postgres as embedded_postgres
from frameledger_services.embedded.kafka import KafkaServer
from frameledger_services.embedded.postgres import PostgresServer

HOUR_MS = "3600000"

_brokers: list[KafkaServer] = []
"""The one of this process, once a test has asked for it."""


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
        await admin.delete_topics([name for name in await admin.list_topics() if not name.startswith("__")])
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
    """A client hashes its password 4096 times for each connection, as it was hashed when the cluster was made: three
    quarters of what it takes to connect, for tens of thousands of connections."""
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
def kafka(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[KafkaServer]:
    """The embedded Kafka. Its jars come from the user's cache; the first run ever fetches them."""
    # As rarely as by default it tells itself that it lives: nobody kills this one. Nor does it write twice a second
    # that there is nothing new, which is half of what a broker costs while nobody uses it, nor look each second at
    # hundreds of partitions for what is not on a disk that it has only for as long as it lives.
    rarely = {
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        "metadata.max.idle.interval.ms": "0",
        "log.flush.scheduler.interval.ms": HOUR_MS,
        "replica.high.watermark.checkpoint.interval.ms": HOUR_MS,
    }
    with (
        java_archive.made(pytestconfig),
        embedded_kafka.running(formatted(tmp_path_factory.mktemp("kafka")), settings=rarely) as server,
    ):
        _brokers.append(server)
        yield server
        _brokers.remove(server)

"""The servers of a bench: a broker and a database server, on which every measurement gets its own topics and
database."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from aiokafka.admin import AIOKafkaAdminClient
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from frameledger_services import access
from frameledger_services.embedded.program import LAUNCHER
from frameledger_services.event_log import broker
from frameledger_services.event_log.topics import topic_specs
from frameledger_services.settings import PREFIX, Settings
from frameledger_services.store import migration

PARTITIONS = 8


class Servers:
    """A running broker and database server. Everything that is created on them is removed at the end of its block."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._numbers = count(1)

    @contextmanager
    def database(self) -> Iterator[Settings]:
        """Yields settings with a new database, which has all tables and no rows."""
        name = f"{self._name}_{next(self._numbers)}"
        server = access.database_address(self._settings)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            address = make_conninfo(server, dbname=name)
            migration.migrate(address)
            yield self._settings.model_copy(update={"database_url": SecretStr(address)})
        finally:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    async def make_topics(self, settings: Settings) -> Settings:
        """Create new topics. Returns these settings with their prefix."""
        settings = settings.model_copy(update={"topic_prefix": f"{self._name}-{next(self._numbers)}."})
        async with broker.connect(settings) as brokers:
            await brokers.create_missing(topic_specs(settings))
        return settings

    async def delete_topics(self, settings: Settings) -> None:
        """Delete the topics that `make_topics` created."""
        admin = AIOKafkaAdminClient(**access.kafka_options(settings))
        await admin.start()
        try:
            await admin.delete_topics([topic.name for topic in topic_specs(settings)])
        finally:
            await admin.close()

    @property
    def _name(self) -> str:
        return f"frameledger_bench_{os.getpid()}"


@contextmanager
def servers(settings: Settings) -> Iterator[Servers]:
    """Yields the servers of the settings if both are configured, else real ones in a temporary folder, which are
    removed after the block.

    Raises `EmbeddedError` if they cannot run on this machine.
    """
    if settings.kafka_bootstrap_servers is not None and settings.database_url is not None:
        yield Servers(settings.model_copy(update={"topic_partitions": PARTITIONS}))
        return
    # They need Linux or macOS, and the command line runs anywhere.
    from frameledger_services.embedded import kafka, postgres

    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="frameledger-bench-")))
        database = stack.enter_context(postgres.running(folder))
        log = stack.enter_context(kafka.running(folder))
        yield Servers(
            Settings(
                kafka_bootstrap_servers=log.bootstrap_servers,
                database_url=SecretStr(database.dsn),
                topic_partitions=PARTITIONS,
            )
        )


def command(*arguments: str) -> list[str]:
    """Returns the command line of one of our processes, from `-m` and the module on. On Linux it ends with this
    process."""
    launcher = [sys.executable, "-I", "-S", str(LAUNCHER), f"--die-with={os.getpid()}", "--"]
    return [*launcher, sys.executable, *arguments]


def environment(settings: Settings) -> dict[str, str]:
    """Returns our environment with these settings instead of its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    return others | {PREFIX + name.upper(): value for name, value in _written(settings).items()}


def _written(settings: Settings) -> Mapping[str, str]:
    values = {name: getattr(settings, name) for name in settings.model_fields_set}
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        for name, value in values.items()
        if value is not None
    }

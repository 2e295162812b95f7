"""The checks of `doctor`. Each yields findings: the state, its meaning, and the remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg

from frameledger_services import database
from frameledger_services.cli.doctor import (
    conversations,
    partitions,
    processes,
    servers,
    topics,
    waiting,
    work,
)
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.database_types import Connection
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.topics import TopicDescription, TopicNames
from frameledger_services.missing_permission import MissingPermissionError
from frameledger_services.projector import topic_identity
from frameledger_services.providers import plugins
from frameledger_services.providers.script import ScriptError
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store import partition_progress, schema, server

LOCK_TIMEOUT = "5s"


async def findings(settings: Settings) -> AsyncIterator[Finding]:
    """Yields each finding as soon as it is known. Checks that need an unreachable server are left out; the finding
    about that server says why."""
    if settings.inference_provider is not None:
        yield _model(settings.inference_provider, settings)
    for finding in servers.disk(settings):
        yield finding
    for finding in await processes.findings(settings):
        yield finding
    described: dict[str, TopicDescription] = {}
    try:
        described = await topics.described(settings)
    except SettingsError as error:
        # The message of the error contains the remedy.
        yield Finding("broker", "fail", str(error))
    except BrokerError as error:
        remedy = servers.start_it(settings, "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS")
        yield Finding("broker", "fail", str(error), remedy)
    else:
        yield Finding("broker", "ok", f"Kafka answers at {settings.kafka_bootstrap_servers}.")
        for finding in topics.findings(settings, described):
            yield finding
    frames = described.get(TopicNames(settings.topic_prefix).frames)
    try:
        # A table may be locked for hours, such as by VACUUM FULL.
        session = {"lock_timeout": LOCK_TIMEOUT}
        async with await database.connect(settings, "frameledger doctor", session) as connection:
            async for finding in _of_database(settings, connection, frames):
                yield finding
    except SettingsError as error:
        yield Finding("database", "fail", str(error))
    except MissingPermissionError as error:
        yield Finding("database", "fail", error.problem, error.remedy)
    except psycopg.Error as error:
        remedy = servers.connect_to_database(settings, error)
        yield Finding("database", "fail", str(error).strip(), remedy)
    if frames is not None:
        yield await partitions.partitioners(settings, frames)


def _model(provider: str, settings: Settings) -> Finding:
    """Checks that the configured provider is installed, and has its key or its script. Only the provider knows whether
    a key is valid."""
    try:
        plugins.require_key(provider, settings)
    except plugins.MissingKeyError as error:
        return Finding("model", "fail", error.problem, error.remedy)
    except plugins.NoSuchProviderError as error:
        return Finding("model", "fail", str(error), "Set FRAMELEDGER_INFERENCE_PROVIDER to one of them.")
    except ScriptError as error:
        return Finding(
            "model", "fail", str(error), "Fix it, or set FRAMELEDGER_INFERENCE_SCRIPT to another one."
        )
    return Finding("model", "ok", f"The provider is {provider}, and it is configured.")


async def _of_database(
    settings: Settings, connection: Connection, frames: TopicDescription | None
) -> AsyncIterator[Finding]:
    version = connection.info.parameter_status("server_version")
    pooled = await server.is_pooled(connection)
    through = ", through a pooler" if pooled else ""
    yield Finding("database", "ok", f"PostgreSQL {version} answers at {_where(connection)}{through}.")
    for finding in await servers.findings(connection):
        yield finding
    try:
        revision = await schema.check(connection)
    except schema.SchemaError as error:
        yield Finding("schema", "fail", error.problem, error.remedy)
        return
    yield Finding("schema", "ok", f"The schema has revision {revision}, which this release supports.")
    if await server.commits_asynchronously(connection):
        yield Finding(
            "commits",
            "warn",
            "synchronous_commit is off for this user: if PostgreSQL crashes, it may lose claims and started calls, and "
            "the work may be executed twice.",
            "Set it to on, or to a stricter value, for this role and database.",
        )
    if frames is not None:
        changed = await topic_identity.difference(connection, frames)
        if changed is not None:
            yield Finding(
                "same topic", "fail", changed, "Services do not read it. See `frameledger recover`."
            )
            return
        async for finding in partitions.unchanged(settings, connection, frames):
            yield finding
    topic = TopicNames(settings.topic_prefix).frames
    reach = await partition_progress.progress(connection, topic)
    yield partitions.owners(topic, reach, frames, pooled=pooled)
    if frames is not None and reach:
        yield await partitions.progress(settings, connection, topic, reach)
    async for finding in waiting.findings(connection):
        yield finding
    yield await conversations.unknown_types(connection)
    yield await conversations.without_time(connection)
    async for finding in work.findings(connection):
        yield finding
    yield await conversations.refused(connection)


def _where(connection: Connection) -> str:
    info = connection.info
    return f"{info.host}:{info.port}/{info.dbname}"

"""The checks of `doctor`. Each yields findings: the state, its meaning, and the remedy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing

import psycopg

from frameledger.partition import partition_for
from frameledger_services import database, transient
from frameledger_services.cli.doctor import conversations, processes, servers, waiting, work
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.database_types import Connection
from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.reader import last_records
from frameledger_services.event_log.topics import (
    TopicDescription,
    TopicNames,
    problems,
    topic_specs,
    unwritable,
)
from frameledger_services.projector import log_check, topic_identity
from frameledger_services.providers import plugins
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store import partition_progress, projections, schema, server
from frameledger_services.store.partition_progress import PartitionProgress

SAMPLE = 200
"""Number of newest records of which the partitioning is checked."""

PATIENCE = 3.0
"""Seconds within which a projector that lags must advance."""


async def findings(settings: Settings) -> AsyncIterator[Finding]:
    """Yields each finding as soon as it is known. Checks that need an unreachable server are left out; the finding
    about that server says why."""
    if settings.inference_provider is not None:
        yield _model(settings.inference_provider, settings)
    for finding in servers.disk(settings):
        yield finding
    for finding in await processes.findings(settings):
        yield finding
    topics: dict[str, TopicDescription] = {}
    try:
        topics = await _topics(settings)
    except SettingsError as error:
        # The message of the error contains the remedy.
        yield Finding("broker", "fail", str(error))
    except BrokerError as error:
        remedy = servers.start_it(settings, "FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS")
        yield Finding("broker", "fail", str(error), remedy)
    else:
        yield Finding("broker", "ok", f"Kafka answers at {settings.kafka_bootstrap_servers}.")
        for finding in _of_topics(settings, topics):
            yield finding
    frames = topics.get(TopicNames(settings.topic_prefix).frames)
    try:
        async with await database.connect(settings, "frameledger doctor") as connection:
            async for finding in _of_database(settings, connection, frames):
                yield finding
    except SettingsError as error:
        yield Finding("database", "fail", str(error))
    except psycopg.Error as error:
        remedy = servers.start_it(settings, "FRAMELEDGER_DATABASE_URL")
        yield Finding("database", "fail", str(error).strip(), remedy)
    if frames is not None:
        yield await _partitioners(settings, frames)


def _model(provider: str, settings: Settings) -> Finding:
    """Checks that the configured provider is installed and has a key. Only the provider knows whether it is valid."""
    try:
        plugins.require_key(provider, settings)
    except plugins.MissingKeyError as error:
        return Finding("model", "fail", error.problem, error.remedy)
    except plugins.NoSuchProviderError as error:
        return Finding("model", "fail", str(error), "Set FRAMELEDGER_INFERENCE_PROVIDER to one of them.")
    return Finding("model", "ok", f"The provider is {provider}, and it is configured.")


async def _topics(settings: Settings) -> dict[str, TopicDescription]:
    async with broker.connect(settings) as brokers:
        return await brokers.describe([topic.name for topic in topic_specs(settings)], configs=True)


def _of_topics(settings: Settings, found: Mapping[str, TopicDescription]) -> Iterator[Finding]:
    wrong = problems(topic_specs(settings), found)
    for sentence in wrong:
        yield Finding("topics", "fail", sentence, "See `frameledger topics`.")
    if not wrong:
        yield Finding("topics", "ok", f"All {len(found)} topics exist with the expected configuration.")
    for topic in found.values():
        yield from _copies(topic)


def _copies(topic: TopicDescription) -> Iterator[Finding]:
    """Yields the effects of brokers that are down on a topic."""
    stopped = {number: why for number in topic.states if (why := unwritable(topic, [number])) is not None}
    behind = [
        number
        for number, state in sorted(topic.states.items())
        if state.in_sync < state.copies and number not in stopped
    ]
    if stopped:
        first = min(stopped)
        said = f"Nothing can be published to {_partitions(sorted(stopped))} of {topic.name}: {stopped[first]}"
        yield Finding("copies", "fail", said, "Restart the brokers that are down.")
    if behind:
        said = f"Replicas of {_partitions(behind)} of {topic.name} are down or out of sync; publishing works."
        yield Finding("copies", "warn", said, "Restart the brokers that are down.")


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
    except schema.TooOldError as error:
        yield Finding("schema", "fail", str(error), "Run `frameledger migrate`.")
        return
    except schema.SchemaError as error:
        yield Finding("schema", "fail", str(error), "Upgrade this release.")
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
        async for finding in _of_log(settings, connection, frames):
            yield finding
    topic = TopicNames(settings.topic_prefix).frames
    reach = await partition_progress.progress(connection, topic)
    yield _owners(topic, reach, frames, pooled=pooled)
    if frames is not None and reach:
        yield await _progress(settings, connection, topic, reach)
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


async def _of_log(
    settings: Settings, connection: Connection, frames: TopicDescription
) -> AsyncIterator[Finding]:
    """Yields a finding for each partition of which the log differs from the stored frames."""
    try:
        async with open_probe(settings, frames.name) as log:
            for stored in await projections.stored_positions(connection, frames.name):
                said = log_check.describe_difference(
                    frames.name, stored, await log_check.log_state(log, stored)
                )
                if said is not None:
                    yield Finding("same log", "fail", said, log_check.REMEDY)
    except transient.BROKER as error:
        why = transient.reason(error)
        yield Finding(
            "same log", "warn", f"The log could not be compared: {why}", "Run `frameledger doctor` again."
        )


def _owners(
    topic: str, reach: Sequence[PartitionProgress], frames: TopicDescription | None, *, pooled: bool
) -> Finding:
    remedy = "Start one: `frameledger run projector`, or everything: `frameledger up`. Its log says why it stopped."
    if not reach:
        said = f"No projector has ever read {topic}."
        if frames is None or frames.leaderless:
            # A running projector may be waiting for the brokers.
            said += " Brokers are down or do not have the topic; a running projector may be waiting for them."
        return Finding("projector", "fail", said, remedy)
    count = len(reach) if frames is None else frames.partitions
    orphans = [one.partition for one in reach if not one.is_owned]
    orphans += sorted(set(range(count)) - {one.partition for one in reach})
    if len(orphans) >= count:
        return Finding(
            "projector", "fail", "No projector is running: published frames are not stored.", remedy
        )
    if orphans:
        said = f"No projector reads {_partitions(orphans)}. A projector that just started takes them over shortly."
        return Finding("projector", "fail", said, remedy)
    owners = {one.owner for one in reach}
    who = "One projector reads" if len(owners) == 1 else f"{len(owners)} projectors read"
    if pooled:
        return Finding(
            "projector",
            "warn",
            f"{who} all {count} partitions, if they still run: a pooler keeps the sessions of stopped projectors.",
            "The finding `gap` tells whether they read. For certainty, connect to PostgreSQL without the pooler.",
        )
    known = "" if frames is not None else ", according to the tables; the topic could not be read"
    return Finding("projector", "ok", f"{who} all {count} partitions{known}.")


async def _progress(
    settings: Settings, connection: Connection, topic: str, reach: Sequence[PartitionProgress]
) -> Finding:
    """Checks that the records on the log are stored."""
    try:
        async with open_probe(settings, topic) as log:
            ends = {one.partition: (await log.offsets(one.partition))[1] for one in reach}
    except transient.BROKER as error:
        said = f"The end offsets of the partitions could not be read: {transient.reason(error)}"
        return Finding("gap", "warn", said, "Run `frameledger doctor` again.")
    first = _behind(reach, ends)
    now, deadline = first, asyncio.get_running_loop().time() + PATIENCE
    while now and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.1)
        now = _behind(await partition_progress.progress(connection, topic), ends)
    if not now:
        return Finding("gap", "ok", "Everything on the log is in the tables.")
    gap = f"{sum(now.values()):,} records of {_partitions(sorted(now))} are on the log and not in the tables"
    stuck = sorted(partition for partition, behind in now.items() if behind == first.get(partition))
    if stuck:
        return Finding(
            "gap",
            "fail",
            f"{gap}, and {_partitions(stuck)} is not advancing.",
            "The projector's log says what it is waiting for.",
        )
    return Finding(
        "gap", "warn", f"{gap}; the projectors are advancing.", "If this persists, start more projectors."
    )


def _behind(reach: Sequence[PartitionProgress], ends: Mapping[int, int]) -> dict[int, int]:
    gaps = {one.partition: ends[one.partition] - one.next_offset for one in reach if one.partition in ends}
    return {partition: gap for partition, gap in gaps.items() if gap > 0}


async def _partitioners(settings: Settings, frames: TopicDescription) -> Finding:
    """Counts the newest records in another partition than Kafka's Java clients and ours choose."""
    foreign = keyed = 0
    try:
        async with aclosing(last_records(settings, frames.name, SAMPLE)) as records:
            async for record in records:
                if record.key:
                    keyed += 1
                    foreign += partition_for(record.key, frames.partitions) != record.partition
    except BrokerError as error:
        return Finding("forwarding", "warn", str(error), "Run `frameledger doctor` again.")
    if not foreign:
        return Finding(
            "forwarding", "ok", f"The newest {keyed:,} records are in the partitions of their keys."
        )
    return Finding(
        "forwarding",
        "warn",
        f"{foreign:,} of the newest {keyed:,} records were published with another partitioner and forwarded to the "
        "partition of their key: they are stored, but each takes one more hop.",
        "Set partitioner=murmur2_random in clients of librdkafka (kcat, confluent-kafka ...).",
    )


def _partitions(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10])) + (" ..." if len(numbers) > 10 else "")
    return f"partition{'' if len(numbers) == 1 else 's'} {shown}"

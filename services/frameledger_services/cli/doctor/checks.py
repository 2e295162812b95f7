"""What `doctor` looks at: each check says what it found, what that means, and what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import psycopg
from psycopg import AsyncConnection

from frameledger.partition import partition_for
from frameledger_services import database, transient
from frameledger_services.cli.doctor import conversations, processes, servers, waiting, work
from frameledger_services.cli.doctor.finding import Finding
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
"""So many of the newest records are looked at for how they were partitioned."""

PATIENCE = 3.0
"""Seconds in which a projector that is behind has to read something."""

Connection = AsyncConnection[Any]


async def findings(settings: Settings) -> AsyncIterator[Finding]:
    """All findings, each when it is there. What cannot be looked at, because what it lies in is not reached, is left
    out: the finding before says why."""
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
        # It says itself what to do.
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
    """Whether the provider that is to answer is there and has a key; if it is right only the provider knows."""
    try:
        plugins.require_key(provider, settings)
    except plugins.MissingKeyError as error:
        return Finding("model", "fail", error.problem, error.remedy)
    except plugins.NoSuchProviderError as error:
        return Finding("model", "fail", str(error), "Set FRAMELEDGER_INFERENCE_PROVIDER to one of them.")
    return Finding("model", "ok", f"{provider} is to answer, and has what it needs here.")


async def _topics(settings: Settings) -> dict[str, TopicDescription]:
    async with broker.connect(settings) as brokers:
        return await brokers.describe([topic.name for topic in topic_specs(settings)], configs=True)


def _of_topics(settings: Settings, found: Mapping[str, TopicDescription]) -> Iterator[Finding]:
    wrong = problems(topic_specs(settings), found)
    for sentence in wrong:
        yield Finding("topics", "fail", sentence, "See `frameledger topics`.")
    if not wrong:
        yield Finding("topics", "ok", f"All {len(found)} topics are as they should be.")
    for topic in found.values():
        yield from _copies(topic)


def _copies(topic: TopicDescription) -> Iterator[Finding]:
    """What brokers that are away mean for a topic."""
    stopped = {number: why for number in topic.states if (why := unwritable(topic, [number])) is not None}
    behind = [
        number
        for number, state in sorted(topic.states.items())
        if state.in_sync < state.copies and number not in stopped
    ]
    if stopped:
        first = min(stopped)
        said = f"Nothing can be published to {_partitions(sorted(stopped))} of {topic.name}: {stopped[first]}"
        yield Finding("copies", "fail", said, "Have the brokers that are away come back.")
    if behind:
        said = f"Copies of {_partitions(behind)} of {topic.name} are away or behind; it can be written to."
        yield Finding("copies", "warn", said, "Have the brokers that are away come back.")


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
    yield Finding("schema", "ok", f"Its tables have revision {revision}, which this release works with.")
    if await server.commits_asynchronously(connection):
        yield Finding(
            "commits",
            "warn",
            "synchronous_commit is off for us: if PostgreSQL dies, what workers claimed and began may be forgotten "
            "and done twice.",
            "Set it to on, or to what is stricter, for our role and database.",
        )
    if frames is not None:
        changed = await topic_identity.difference(connection, frames)
        if changed is not None:
            yield Finding("same topic", "fail", changed, "Services refuse to read it.")
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
    """Yields a finding for each partition whose log differs from the one that was stored."""
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
        yield Finding("same log", "warn", f"The log could not be compared: {why}", "Look again.")


def _owners(
    topic: str, reach: Sequence[PartitionProgress], frames: TopicDescription | None, *, pooled: bool
) -> Finding:
    remedy = "Start one: `frameledger run projector`, or everything with `frameledger up`; its log says why it ended."
    if not reach:
        said = f"The tables know of no projector that ever read {topic}."
        if frames is None or frames.leaderless:
            # It may be waiting for just that.
            said += " Brokers are away or do not know the topic, so one that runs may wait for them."
        return Finding("projector", "fail", said, remedy)
    count = len(reach) if frames is None else frames.partitions
    orphans = [one.partition for one in reach if not one.is_owned]
    orphans += sorted(set(range(count)) - {one.partition for one in reach})
    if len(orphans) >= count:
        return Finding("projector", "fail", "No projector runs: what is published is not stored.", remedy)
    if orphans:
        said = f"Nobody reads {_partitions(orphans)}; a projector that has just begun takes them in a moment."
        return Finding("projector", "fail", said, remedy)
    owners = {one.owner for one in reach}
    who = "One projector reads" if len(owners) == 1 else f"{len(owners)} projectors read"
    if pooled:
        return Finding(
            "projector",
            "warn",
            f"{who} all {count} partitions, unless they are gone: a pooler keeps the sessions of those that ended.",
            "The gap says whether anybody reads; connect to PostgreSQL itself to know more.",
        )
    known = "" if frames is not None else ", as far as the tables know: the topic could not be asked"
    return Finding("projector", "ok", f"{who} all {count} partitions{known}.")


async def _progress(
    settings: Settings, connection: Connection, topic: str, reach: Sequence[PartitionProgress]
) -> Finding:
    """Whether what is on the log now gets into the tables."""
    try:
        async with open_probe(settings, topic) as log:
            ends = {one.partition: (await log.offsets(one.partition))[1] for one in reach}
    except transient.BROKER as error:
        said = f"The ends of the partitions could not be asked for: {transient.reason(error)}"
        return Finding("gap", "warn", said, "Look again.")
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
            f"{gap}, and {_partitions(stuck)} does not get on.",
            "The projector's log says what it waits for.",
        )
    return Finding("gap", "warn", f"{gap}; it gets on.", "If it stays so, start more projectors.")


def _behind(reach: Sequence[PartitionProgress], ends: Mapping[int, int]) -> dict[int, int]:
    gaps = {one.partition: ends[one.partition] - one.next_offset for one in reach if one.partition in ends}
    return {partition: gap for partition, gap in gaps.items() if gap > 0}


async def _partitioners(settings: Settings, frames: TopicDescription) -> Finding:
    """How many of the newest records lie in another partition than Java's clients and ours would put them."""
    foreign = keyed = 0
    try:
        async with aclosing(last_records(settings, frames.name, SAMPLE)) as records:
            async for record in records:
                if record.key:
                    keyed += 1
                    foreign += partition_for(record.key, frames.partitions) != record.partition
    except BrokerError as error:
        return Finding("forwarding", "warn", str(error), "Look again.")
    if not foreign:
        return Finding("forwarding", "ok", f"The newest {keyed:,} records lie where their keys belong.")
    return Finding(
        "forwarding",
        "warn",
        f"{foreign:,} of the newest {keyed:,} records came through another partitioner and were forwarded: all is "
        "right with them, but each takes a hop more, and its place is in another partition.",
        "Let librdkafka's clients (kcat, confluent-kafka ...) set partitioner=murmur2_random.",
    )


def _partitions(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10])) + (" ..." if len(numbers) > 10 else "")
    return f"partition{'' if len(numbers) == 1 else 's'} {shown}"

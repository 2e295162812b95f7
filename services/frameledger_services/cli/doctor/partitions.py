"""The checks of `doctor` on partitions of the log: they are read, stored, unchanged, and chosen like ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

from frameledger.partition import partition_for
from frameledger_services import transient
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.doctor.topics import numbered
from frameledger_services.database_types import Connection
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.reader import last_records
from frameledger_services.event_log.topics import TopicDescription
from frameledger_services.projector import log_check
from frameledger_services.settings import Settings
from frameledger_services.store import partition_progress, projections
from frameledger_services.store.partition_progress import PartitionProgress

SAMPLE = 200
"""Number of newest records whose partitioning is checked."""

SAMPLE_SECONDS = 15.0
"""Timeout of reading them: with a quota of some bytes a second it would take hours."""

AGAIN = (
    "Run `frameledger doctor` again. If the broker answers slowly, it is busy, or a quota limits this client."
)

PATIENCE = 3.0
"""Seconds within which a projector that lags must advance."""


async def unchanged(
    settings: Settings, connection: Connection, frames: TopicDescription
) -> AsyncIterator[Finding]:
    """Yields a finding for each partition whose log differs from the stored frames."""
    try:
        async with open_probe(settings, frames.name) as log:
            for stored in await projections.stored_positions(connection, frames.name):
                difference = log_check.describe_difference(
                    frames.name, stored, await log_check.log_state(log, stored)
                )
                if difference is not None:
                    yield Finding("same log", "fail", difference, log_check.REMEDY)
    except transient.BROKER as error:
        why = transient.reason(error)
        yield Finding("same log", "warn", f"The log could not be compared: {why}", AGAIN)


def owners(
    topic: str, reach: Sequence[PartitionProgress], frames: TopicDescription | None, *, pooled: bool
) -> Finding:
    """Checks that projectors read all partitions."""
    remedy = (
        "Start one if none runs: `frameledger run projector`, or everything: `frameledger up`. Its log says why it "
        "stopped, or what it waits for, such as space on the disk of the database."
    )
    if not reach:
        problem = f"No projector has ever read {topic}."
        if frames is None or frames.leaderless:
            # A running projector may be waiting for the brokers.
            problem += (
                " Brokers are down or do not have the topic; a running projector may be waiting for them."
            )
        return Finding("projector", "fail", problem, remedy)
    count = len(reach) if frames is None else frames.partitions
    orphans = [one.partition for one in reach if not one.is_owned]
    orphans += sorted(set(range(count)) - {one.partition for one in reach})
    if len(orphans) >= count:
        return Finding(
            "projector", "fail", "No projector reads the log: published frames are not stored.", remedy
        )
    if orphans:
        problem = (
            f"No projector of this database reads {numbered(orphans)}. A projector that just started takes them over "
            "shortly; one that uses another database with the same topics keeps them until it is stopped."
        )
        return Finding("projector", "fail", problem, remedy)
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


async def progress(
    settings: Settings, connection: Connection, topic: str, reach: Sequence[PartitionProgress]
) -> Finding:
    """Checks that the records on the log are stored."""
    try:
        async with open_probe(settings, topic) as log:
            ends = {one.partition: (await log.offsets(one.partition))[1] for one in reach}
    except transient.BROKER as error:
        problem = f"The end offsets of the partitions could not be read: {transient.reason(error)}"
        return Finding("gap", "warn", problem, AGAIN)
    first = _behind(reach, ends)
    now, deadline = first, asyncio.get_running_loop().time() + PATIENCE
    while now and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.1)
        now = _behind(await partition_progress.progress(connection, topic), ends)
    if not now:
        return Finding("gap", "ok", "Everything on the log is in the tables.")
    gap = f"{sum(now.values()):,} records of {numbered(sorted(now))} are on the log and not in the tables"
    stuck = sorted(partition for partition, behind in now.items() if behind == first.get(partition))
    if stuck:
        return Finding(
            "gap",
            "fail",
            f"{gap}, and {numbered(stuck)} {'is' if len(stuck) == 1 else 'are'} not advancing.",
            "The projector's log says what it is waiting for. If it says nothing, look for a projector that uses "
            "another database with the same topics.",
        )
    return Finding(
        "gap", "warn", f"{gap}; the projectors are advancing.", "If this persists, start more projectors."
    )


def _behind(reach: Sequence[PartitionProgress], ends: Mapping[int, int]) -> dict[int, int]:
    gaps = {one.partition: ends[one.partition] - one.next_offset for one in reach if one.partition in ends}
    return {partition: gap for partition, gap in gaps.items() if gap > 0}


async def partitioners(settings: Settings, frames: TopicDescription) -> Finding:
    """Counts the newest records in another partition than Kafka's Java clients and ours choose."""
    foreign = keyed = 0
    try:
        async with (
            asyncio.timeout(SAMPLE_SECONDS),
            aclosing(last_records(settings, frames.name, SAMPLE)) as records,
        ):
            async for record in records:
                if record.key:
                    keyed += 1
                    foreign += partition_for(record.key, frames.partitions) != record.partition
    except transient.BROKER as error:
        problem = f"The newest records could not be read: {transient.reason(error)}"
        return Finding("forwarding", "warn", problem, AGAIN)
    if not foreign:
        return Finding(
            "forwarding", "ok", f"The newest {keyed:,} records are in the partitions of their keys."
        )
    return Finding(
        "forwarding",
        "warn",
        f"{foreign:,} of the newest {keyed:,} records were published with another partitioner and forwarded to the "
        "partition of their key: they are stored, but each takes one more hop.",
        "Have producers choose partitions by murmur2, as Java's do: partitioner=murmur2_random in clients of "
        "librdkafka (kcat, confluent-kafka ...), Murmur2Balancer in kafka-go.",
    )

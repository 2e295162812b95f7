"""The projector as a service: its connections and tasks, which are restarted after transient errors.

`GroupMember` does the work.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass
from secrets import token_hex

from frameledger_services import database, exception_groups, failpoints, logs, supervision
from frameledger_services.database_types import Connection
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import consumer, join_group
from frameledger_services.event_log.feed import Feed
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicDescription, TopicNames
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector import instance_id, topic_identity
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.crashes import end_in_order
from frameledger_services.projector.group_member import GroupMember
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.log_check import LogChangedError
from frameledger_services.projector.metrics import ProjectorMetrics
from frameledger_services.projector.notifier import Notifier
from frameledger_services.projector.outbox_rows import effect_topics
from frameledger_services.projector.ownership import ProjectorTopics
from frameledger_services.projector.relay import Relay
from frameledger_services.projector.row_sender import WAIT_SECONDS, RowSender
from frameledger_services.settings import Settings
from frameledger_services.store import binary_copy, schema
from frameledger_services.store.topics import TopicChangedError
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

NAME = "frameledger-projector"
"""The client id on the broker."""

DRAIN_SECONDS = 10.0

SESSION = {
    **database.UNLIMITED,
    # If a statement gave up waiting for a row, the projector would start again and leave its group: then all projectors
    # stop, and again for as long as the row is locked. A new owner does not wait for a frozen one (`takeover`).
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "10s",
    # The server's counterpart of `database.KERNEL`: until it ends, the session of a lost machine counts as alive.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    # Rows are found only by their keys. No plan needs statistics, which may be those of an empty table.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""The settings of our sessions."""

PREPARED = 250
"""The number of statements that a session keeps prepared. Small batches have some hundreds of forms, and planning one
takes longer than executing it."""

_log = logs.get_logger("projector")


async def serve(
    settings: Settings,
    stopping: asyncio.Event,
    failpoint: Failpoint | None = None,
    metrics: Metrics = NO_METRICS,
) -> None:
    """Project until `stopping` is set. After transient errors of broker and database, which are logged, it tries again.

    Raises errors that waiting does not solve: `SchemaError`, `LogChangedError`, `TopicChangedError`, and, the second
    time it occurs, `DuplicateInstanceError`.
    """
    place = f"{socket.gethostname()}/{os.getpid()}/{token_hex(4)}"
    instance = instance_id.Instance(place, settings.projector_instance_id)
    duplicates = 0
    counted = ProjectorMetrics(metrics)

    async def project() -> None:
        nonlocal duplicates
        try:
            await _project_or_raise_one(settings, instance, stopping, failpoint or failpoints.none, counted)
        except instance_id.DuplicateInstanceError as error:
            duplicates += 1
            if duplicates == 2:
                raise
            _log.warning("projector.name_taken", reason=str(error))

    await supervision.keep_running(project, stopping, _log)


async def _project_or_raise_one(
    settings: Settings,
    instance: instance_id.Instance,
    stopping: asyncio.Event,
    failpoint: Failpoint,
    metrics: ProjectorMetrics,
) -> None:
    """Project. An error that ends the process is raised by itself and not within an exception group."""
    try:
        await _project(settings, instance, stopping, failpoint, metrics)
    except BaseExceptionGroup as errors:
        final = errors.subgroup((LogChangedError, TopicChangedError, instance_id.DuplicateInstanceError))
        if final is not None:
            raise exception_groups.first(final) from None
        raise


async def _project(
    settings: Settings,
    instance: instance_id.Instance,
    stopping: asyncio.Event,
    failpoint: Failpoint,
    metrics: ProjectorMetrics,
) -> None:
    """Project on new connections until `stopping` is set."""
    async with AsyncExitStack() as stack:
        connections = await _connections(settings, stack)
        frames = await _checked_topic(settings, connections.batches)
        topics = _topics(settings, frames)
        # The forwarding producer has to use the same number of partitions as the check that a record is in its
        # partition.
        producer = await stack.enter_async_context(Producer(settings, name=NAME, topics=[frames]))
        log = await stack.enter_async_context(open_probe(settings, topics.frames))
        client = consumer(
            settings, group=topics.group, name=NAME, group_instance_id=settings.projector_instance_id
        )
        relay = Relay(connections.relay, RowSender(producer, WAIT_SECONDS), failpoint, metrics)
        notifier = Notifier(connections.notifier, topics.frames, failpoint, metrics)
        await instance_id.wait(connections.batches, topics.frames, instance, stopping)
        commits = Commits(
            connections.batches,
            topics,
            HeadCache(),
            failpoint,
            rebuild_frames=settings.projector_rebuild_frames,
            refuse_erased=settings.erased_ids == "refuse",
            metrics=metrics,
        )
        feed = Feed(client, topics.frames, [log.cluster])
        member = GroupMember(client, feed, commits, relay, notifier, log, instance, metrics)
        client.subscribe([topics.frames], listener=member)
        # At the end these run in reverse order: the attempts are cleared before another member gets the partitions. A
        # client that could not start has tasks and connections too.
        stack.push_async_callback(lambda: closed(client.stop()))
        if not await join_group(client, stopping):
            return
        stack.push_async_callback(lambda: _end_in_order(settings, connections.batches, topics, instance))
        await _run(member, relay, notifier, stopping)


@dataclass(frozen=True, slots=True)
class _Connections:
    """The connections of a projector, one for each of its concurrent parts."""

    batches: Connection
    relay: Connection
    notifier: Connection
    """A separate connection, because a NOTIFY waits for all earlier ones."""


async def _connections(settings: Settings, stack: AsyncExitStack) -> _Connections:
    """Connect. `stack` closes the connections."""

    async def connected(name: str) -> Connection:
        return await stack.enter_async_context(await _connect(settings, name))

    return _Connections(
        batches=await connected("projector"),
        relay=await connected("projector relay"),
        notifier=await connected("projector notifier"),
    )


async def _checked_topic(settings: Settings, connection: Connection) -> TopicDescription:
    """Returns the topic of frames. Raises `SchemaError` for the database of another release, and `TopicChangedError`
    for a database that was filled from another topic."""
    await schema.check(connection)
    description = await topic_identity.describe(settings, TopicNames(settings.topic_prefix).frames)
    async with connection.transaction():
        await topic_identity.pin(connection, description)
    return description


def _topics(settings: Settings, frames: TopicDescription) -> ProjectorTopics:
    names = TopicNames(settings.topic_prefix)
    return ProjectorTopics(
        frames=frames.name,
        dead_letters=names.dead_letters,
        effects=effect_topics(names),
        partitions=frames.partitions,
        group=f"{settings.topic_prefix}projector",
    )


async def _run(member: GroupMember, relay: Relay, notifier: Notifier, stopping: asyncio.Event) -> None:
    """Run until `stopping` is set; then publish and notify the rest, within `DRAIN_SECONDS`."""
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(relay.run()), tasks.create_task(notifier.run())]
        await member.run(stopping)
        async with asyncio.timeout(DRAIN_SECONDS):
            await relay.until_drained()
            await notifier.until_drained()
        for task in beside:
            task.cancel()


async def _end_in_order(
    settings: Settings, connection: Connection, topics: ProjectorTopics, instance: instance_id.Instance
) -> None:
    await end_in_order(connection, topics.frames, instance.owner, lambda: _connect(settings, "projector"))


async def _connect(settings: Settings, name: str) -> Connection:
    connection = await database.connect(
        settings, f"frameledger {name}", SESSION, role="frameledger_projector"
    )
    connection.prepared_max = PREPARED
    binary_copy.prepare(connection)
    return connection

"""The projector as a service: consumes the frames, stores them in batches, publishes what follows from them.

The consumer group only deals out partitions; how far each was read stands in Postgres, moved in the transaction of
each batch. The group's consumer reads nothing: a partition that the group gives us is read by the `Feed`, from when it
is taken over (`takeover`), so no record is read before its place is known.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from random import random
from secrets import token_hex
from typing import Any

from psycopg import AsyncConnection

from frameledger_services import database, failpoints, logs, transient
from frameledger_services.event_log import broker
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import (
    ConsumerRebalanceListener,
    TopicPartition,
    consumer,
)
from frameledger_services.event_log.feed import Feed
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector import held_effects, instance_id, takeover, topic_identity
from frameledger_services.projector.batch_fold import FetchedRecord, effect_topics
from frameledger_services.projector.batches import (
    Batches,
    OwnedPartition,
    ProjectorFencedError,
    ProjectorTopics,
)
from frameledger_services.projector.crashes import Isolation, end_in_order
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.log_check import LogChangedError, LogProbe
from frameledger_services.projector.notifier import Notifier
from frameledger_services.projector.prefetch import Chunk, Prefetch
from frameledger_services.projector.relay import Relay, left_behind, sender
from frameledger_services.settings import Settings
from frameledger_services.store import binary_copy, schema

MAX_RECORDS = 2_000
"""Of a batch. In a backlog a head is written once for all of its frames in it: with half as many a frame took
a sixth longer."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends with the record that makes it larger than this; a single record may be as large as records get."""

DRAIN_SECONDS = 10.0

QUIET_MS = 500
"""How long we wait at most before we look whether we are to stop."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two tries to work; short again after one that lasted longer than the longest."""

MAX_FENCED_BACKOFF = 0.5
"""Seconds at most, by chance, before one who was fenced takes over again: whoever fenced it gets something done."""

SESSION = {
    "idle_in_transaction_session_timeout": "10s",
    # The server's side of `KEEPALIVE`: the session of a machine that is gone counts as one that lives.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    # We ask for rows by their keys and for nothing else. The planner is to know that once and for all, also of a table
    # that was empty a moment ago.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""What our sessions on the database are set to."""

PREPARED = 250
"""Statements that a session keeps prepared. Small batches have some hundred forms, and planning one anew takes longer
than the batch."""

_log = logs.get_logger("projector")


async def serve(settings: Settings, stopping: asyncio.Event, failpoint: Failpoint | None = None) -> None:
    """Project until `stopping` is set. What is away for a while is waited for, and said.

    Raises what waiting does not mend: a database in another shape, a log that is not the one that was projected,
    another projector of our name that was there twice, each time for as long as the group waits for a silent member.
    """
    loop = asyncio.get_running_loop()
    pause = SHORTEST_PAUSE
    namesakes_met = 0
    place = f"{socket.gethostname()}/{os.getpid()}/{token_hex(4)}"
    ourselves = instance_id.Instance(place, settings.projector_instance_id)
    while not stopping.is_set():
        began = loop.time()
        try:
            await _project_or_say_why_not(settings, ourselves, stopping, failpoint or failpoints.none)
        except* instance_id.DuplicateInstanceError as errors:
            namesakes_met += 1
            if namesakes_met == 2:
                raise _first(errors) from None
            _log.warning("projector.waiting", reason=str(_first(errors)))
        except* transient.EITHER as errors:
            what = transient.reason(_first(errors))
            if loop.time() - began > LONGEST_PAUSE:
                pause = SHORTEST_PAUSE
            _log.warning("projector.waiting", reason=what, again_in=pause)
            await _sleep(stopping, pause)
            pause = min(pause * 2, LONGEST_PAUSE)


async def _project_or_say_why_not(
    settings: Settings, ourselves: instance_id.Instance, stopping: asyncio.Event, failpoint: Failpoint
) -> None:
    """A log that has changed, or another one of our name, is the one error, and not one of a group of errors."""
    try:
        await _project(settings, ourselves, stopping, failpoint)
    except BaseExceptionGroup as errors:
        changed = errors.subgroup(
            (LogChangedError, topic_identity.TopicChangedError, instance_id.DuplicateInstanceError)
        )
        if changed is not None:
            raise _first(changed) from None
        raise


async def _project(
    settings: Settings, ourselves: instance_id.Instance, stopping: asyncio.Event, failpoint: Failpoint
) -> None:
    names = TopicNames(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        batches_connection = await stack.enter_async_context(await _connect(settings, "projector"))
        relay_connection = await stack.enter_async_context(await _connect(settings, "projector relay"))
        # Its own: who announces waits for all others who do.
        announcer_connection = await stack.enter_async_context(
            await _connect(settings, "projector announcer")
        )
        await schema.check(batches_connection)
        found = await topic_identity.describe(settings, names.frames)
        async with batches_connection.transaction():
            await topic_identity.pin(batches_connection, found)
        producer = await stack.enter_async_context(Producer(settings, name="frameledger-projector"))
        log = await stack.enter_async_context(open_probe(settings, names.frames))

        topics = ProjectorTopics(
            frames=names.frames,
            dead_letters=names.dead_letters,
            effects=effect_topics(names),
            partitions=found.partitions,
        )
        client = consumer(
            settings,
            group=f"{settings.topic_prefix}projector",
            name="frameledger-projector",
            group_instance_id=settings.projector_instance_id,
        )
        relay = Relay(relay_connection, sender(producer), failpoint)
        announcer = Notifier(announcer_connection, names.frames, failpoint)
        feed = Feed(client, names.frames, [log.cluster])
        await instance_id.wait(batches_connection, names.frames, ourselves, stopping)
        projector = _Projector(
            client, feed, batches_connection, relay, announcer, log, topics, failpoint, ourselves
        )
        client.subscribe([names.frames], listener=projector)
        await client.start()
        stack.push_async_callback(lambda: closed(client.stop()))
        stack.push_async_callback(
            lambda: end_in_order(
                batches_connection, names.frames, ourselves.owner, lambda: _connect(settings, "projector")
            )
        )
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(relay.run()), tasks.create_task(announcer.run())]
            await projector.run(stopping)
            async with asyncio.timeout(DRAIN_SECONDS):
                await relay.drained()
                await announcer.finished()
            for task in beside:
                task.cancel()


class _Projector(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """One membership in the group, over connections of its own."""

    def __init__(
        self,
        client: Any,
        feed: Feed,
        connection: AsyncConnection[Any],
        relay: Relay,
        announcer: Notifier,
        log: LogProbe,
        topics: ProjectorTopics,
        failpoint: Failpoint,
        ourselves: instance_id.Instance,
    ) -> None:
        self._client = client
        self._feed = feed
        self._connection = connection
        self._relay = relay
        self._announcer = announcer
        self._log = log
        self._topics = topics
        self._cache = HeadCache()
        self._batches = Batches(connection, topics, self._cache, failpoint)
        self._self = ourselves
        self._isolation = Isolation(connection, topics.frames, self._batches)
        self._owned: dict[int, OwnedPartition] = {}
        self._ahead = Prefetch(self._owned, self._isolation.may_decode)
        self._to_take: set[int] = set()
        self._was_fenced = False
        self._between_batches = asyncio.Lock()

    async def run(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._feed.run(self._ahead.receive, self._doubt)),
                tasks.create_task(self._belong()),
            ]
            while not stopping.is_set():
                if self._was_fenced:
                    # Two who both believe that they own a partition would fence each other in step, for ever.
                    await _sleep(stopping, random() * MAX_FENCED_BACKOFF)
                    self._was_fenced = False
                await self._take_over()
                if self._to_take:
                    continue  # assigned meanwhile; the waiting below would forget that it was to be ended
                await self._ahead.some()
                async with self._between_batches:
                    await self._store(self._ahead.take(MAX_RECORDS))
            for task in beside:
                task.cancel()

    async def _belong(self) -> None:
        """Be a member of the group. A consumer says what its coordinator says, and believes that it is alive, while it
        is asked for records. It has none: all is paused, and read by the feed."""
        while True:
            await self._client.getmany(timeout_ms=QUIET_MS)
            if not self._client.partitions_for_topic(self._topics.frames):
                # Deleted: the group gives us nothing, so nothing is read that would tell when there is a topic again,
                # and aiokafka looks by itself only every five minutes.
                self._client._client.force_metadata_update()
            self._ahead.wake()

    async def _doubt(self, offsets: Mapping[int, int]) -> None:
        """The broker of these partitions was away: taken over anew, they show whether their log is still ours."""
        async with self._between_batches:
            self._take_anew(offsets)
        self._ahead.wake()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Called by the consumer before others get them: a batch under way is finished first."""
        async with self._between_batches:
            for place in revoked:
                self._let_go(place.partition)
            self._cache.clear()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        if assigned:
            self._client.pause(*assigned)
            for place in assigned:
                # A place without a position would be looked for.
                self._client.seek(place, 0)
        self._to_take = {place.partition for place in assigned}
        self._ahead.wake()

    async def _take_over(self) -> None:
        if self._to_take:
            await self._check_topic(min(self._to_take))
            await instance_id.check(self._connection, self._topics.frames, self._self)
        for partition in sorted(self._to_take):
            taken = await takeover.take_over(
                self._connection, self._log, self._topics.frames, partition, self._self.owner
            )
            if partition not in self._to_take:
                continue  # revoked meanwhile
            self._to_take.discard(partition)
            self._owned[partition] = taken.owned
            self._isolation.take(taken.owned, taken.crashes)
            self._feed.follow(partition, taken.owned.next_offset)
            left = await left_behind(self._connection, self._topics.frames, [partition])
            self._relay.hand_over(left)
            try:
                # It may have come to its end with its former owner, who died before it let them out.
                await self._let_effects_out([partition])
            except ProjectorFencedError:
                self._retreat({partition})

    async def _store(self, look: Chunk) -> None:
        # What was read again for nothing but its marker may be stored by now.
        ends = {one: end for one, end in look.ends.items() if end > self._owned[one].next_offset}
        for chunk, positions in _chunks(look.found, ends, self._isolation.is_isolated):
            try:
                self._relay.hand_over(await self._isolation.store(chunk, self._owned, positions))
                await self._let_effects_out(positions)
            except ProjectorFencedError as fenced:
                _log.warning("projector.fenced", partitions=sorted(fenced.partitions))
                # All of them: the consumer is past the records of the batches that do not come any more.
                self._retreat(set(ends))
                return
            # Whoever publishes one at a time waits for this; who publishes many does not notice.
            self._announcer.announce(positions, soon=len(chunk) > 1 or self._ahead.waits)
        self._isolation.end(ends)

    async def _check_topic(self, partition: int) -> None:
        """Records are compared one by one when a partition is taken over; that the topic is the same, here. One that
        was made anew may have a record like the last one that was read."""
        found = await self._feed.topic(partition)
        if found is None:
            raise broker.BrokerError(f"The topic {self._topics.frames} is not there by now.")
        problem = await topic_identity.difference(self._connection, found)
        if problem is not None:
            raise topic_identity.TopicChangedError(problem)

    async def _let_effects_out(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if (owned := self._owned.get(partition)) is not None and owned.held_until is not None:
                self._relay.hand_over(await held_effects.release(self._connection, self._topics, owned))

    def _retreat(self, moved: set[int]) -> None:
        """After a fence nothing in memory can be trusted: take over anew what the group still gives us."""
        self._was_fenced = True
        self._take_anew(moved)

    def _take_anew(self, partitions: Iterable[int]) -> None:
        """Have those of these partitions taken over again that the group still gives us.

        The one way to do so, whatever the reason: with a new epoch a fence is forgotten, so what is in memory goes too.
        """
        self._cache.clear()
        for partition in partitions:
            self._let_go(partition)
            if TopicPartition(self._topics.frames, partition) in self._client.assignment():
                self._to_take.add(partition)

    def _let_go(self, partition: int) -> None:
        self._owned.pop(partition, None)
        self._feed.leave(partition)
        self._ahead.forget(partition)
        self._to_take.discard(partition)
        self._isolation.forget(partition)


def _chunks(
    found: Sequence[FetchedRecord], ends: dict[int, int], is_isolated: Callable[[int], bool]
) -> Iterator[tuple[Sequence[FetchedRecord], dict[int, int]]]:
    """Batches of bounded size, each with where its partitions stand after it; the last brings all to their ends.

    A record of an isolated partition is a batch by itself.
    """
    chunk: list[FetchedRecord] = []
    size = 0
    for one in found:
        record = one[0]
        alone = is_isolated(record.partition)
        if chunk and (alone or is_isolated(chunk[-1][0].partition) or size >= MAX_BATCH_BYTES):
            yield chunk, {before.partition: before.offset + 1 for before, _ in chunk}
            chunk, size = [], 0
        chunk.append(one)
        size += len(record.value or b"")
    if ends:
        yield chunk, ends


def _first(errors: BaseException) -> BaseException:
    """The first error of a group, or of groups in it."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors


async def _connect(settings: Settings, name: str) -> AsyncConnection[Any]:
    connection = await database.connect(settings, f"frameledger {name}", SESSION)
    connection.prepared_max = PREPARED
    binary_copy.prepare(connection)
    return connection


async def _sleep(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return

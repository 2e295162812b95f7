"""The projector as a service: consumes the frames, stores them in batches, publishes what follows from them.

The consumer group only deals out partitions; how far each was read stands in Postgres, moved in the transaction of
each batch. The group's consumer reads nothing: a partition that the group gives us is read by the `Feed`, from when it
is taken over (`partitions`), so no record is read before its place is known.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from random import random
from typing import Any

import psycopg
import structlog
from psycopg import AsyncConnection

from frameledger_services import access
from frameledger_services.event_log import broker, identity
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import (
    ConsumerRebalanceListener,
    KafkaError,
    TopicPartition,
    consumer,
)
from frameledger_services.event_log.feed import Feed
from frameledger_services.event_log.looking import looking
from frameledger_services.event_log.producer import Producer, PublishError
from frameledger_services.event_log.topics import Topics as TopicNames
from frameledger_services.projector import partitions
from frameledger_services.projector.ahead import Ahead, Look
from frameledger_services.projector.announcing import Announcer
from frameledger_services.projector.batches import Batches, FencedError, Owned, Step, Topics, nobody_listens
from frameledger_services.projector.cache import HeadCache
from frameledger_services.projector.folding import Found, effect_topics
from frameledger_services.projector.relay import Relay, left_behind, sending
from frameledger_services.projector.rows import OutboxRow
from frameledger_services.settings import Settings
from frameledger_services.store import copying, projections, schema

MAX_RECORDS = 2_000
"""Of a batch. In a backlog a head is written once for all of its frames in it: with half as many a frame took
a sixth longer."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends with the record that makes it larger than this; a single record may be as large as records get."""

CAREFUL_AFTER = 3
"""So many lives ended at one offset: from then on each record has a transaction of its own."""

PARK_AFTER = 5
"""So many lives ended at one offset, the last ones over one record: it is what kills, and is parked."""

DRAIN_SECONDS = 10.0

QUIET_MS = 500
"""How long we wait at most before we look whether we are to stop."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two tries to work; short again after one that lasted longer than the longest."""

LONGEST_TRUCE = 0.5
"""Seconds at most, by chance, before one who was fenced takes over again: whoever fenced it gets something done."""

PASSING = (
    psycopg.OperationalError,
    # The next two are not operational to psycopg. We were frozen for long; the server is a standby for now.
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.ReadOnlySqlTransaction,
    KafkaError,
    broker.BrokerError,
    PublishError,
    TimeoutError,
)
"""What waiting and new connections mend."""

KEEPALIVE: dict[str, str | int] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}

SESSION = {
    "idle_in_transaction_session_timeout": "10s",
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

_log = structlog.get_logger("projector")


async def serve(settings: Settings, stopping: asyncio.Event, passing: Step | None = None) -> None:
    """Project until `stopping` is set. What is away for a while is waited for, and said.

    Raises what waiting does not mend: a database in another shape, a log that is not the one that was projected.
    """
    loop = asyncio.get_running_loop()
    pause = SHORTEST_PAUSE
    while not stopping.is_set():
        began = loop.time()
        try:
            await _project_or_say_why_not(settings, stopping, passing or nobody_listens)
        except* PASSING as errors:
            first = _first(errors)
            what = str(first).strip() or type(first).__name__
            if loop.time() - began > LONGEST_PAUSE:
                pause = SHORTEST_PAUSE
            _log.warning("waiting", reason=what, again_in=pause)
            await _sleep(stopping, pause)
            pause = min(pause * 2, LONGEST_PAUSE)


async def _project_or_say_why_not(settings: Settings, stopping: asyncio.Event, passing: Step) -> None:
    """A log that has changed is the one error, not one of a group of errors."""
    try:
        await _project(settings, stopping, passing)
    except BaseExceptionGroup as errors:
        changed = errors.subgroup(partitions.LogChangedError)
        if changed is not None:
            raise _first(changed) from None
        raise


async def _project(settings: Settings, stopping: asyncio.Event, passing: Step) -> None:
    names = TopicNames(settings.topic_prefix)
    async with AsyncExitStack() as stack:
        batches_connection = await stack.enter_async_context(await _connect(settings, "projector"))
        relay_connection = await stack.enter_async_context(await _connect(settings, "projector relay"))
        await schema.check(batches_connection)
        async with broker.connect(settings) as brokers:
            found = await brokers.describe([names.frames])
        if names.frames not in found:
            raise broker.BrokerError(f"The topic {names.frames} is not there: `frameledger topics --create`.")
        async with batches_connection.transaction():
            await identity.hold(batches_connection, found[names.frames])
        producer = await stack.enter_async_context(Producer(settings, name="frameledger-projector"))
        log = await stack.enter_async_context(looking(settings, names.frames))

        topics = Topics(
            frames=names.frames,
            dead_letters=names.dead_letters,
            effects=effect_topics(names),
            partitions=found[names.frames].partitions,
        )
        client = consumer(
            settings,
            group=f"{settings.topic_prefix}projector",
            name="frameledger-projector",
            group_instance_id=settings.projector_instance_id,
        )
        relay = Relay(relay_connection, sending(producer), passing)
        announcer = Announcer(relay_connection, names.frames, passing)
        feed = Feed(client, names.frames)
        projector = _Projector(client, feed, batches_connection, relay, announcer, log, topics, passing)
        client.subscribe([names.frames], listener=projector)
        await client.start()
        stack.push_async_callback(lambda: closed(client.stop()))
        stack.push_async_exit(projector.leave)
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(relay.run()), tasks.create_task(announcer.run())]
            await projector.run(stopping)
            async with asyncio.timeout(DRAIN_SECONDS):
                await relay.drained()
                await announcer.finished()
            for task in beside:
                task.cancel()


class KillerError(Exception):
    """Projectors died one after the other when this record was next."""

    def __init__(self, lives: int) -> None:
        super().__init__(
            f"{lives - 1} projectors died when this frame was next; it is not folded until that is mended"
        )


class _Projector(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """One membership in the group, over one pair of connections."""

    def __init__(
        self,
        client: Any,
        feed: Feed,
        connection: AsyncConnection[Any],
        relay: Relay,
        announcer: Announcer,
        log: partitions.Log,
        topics: Topics,
        passing: Step,
    ) -> None:
        self._client = client
        self._feed = feed
        self._connection = connection
        self._relay = relay
        self._announcer = announcer
        self._log = log
        self._topics = topics
        self._cache = HeadCache()
        self._batches = Batches(connection, topics, self._cache, passing)
        self._owner = f"{socket.gethostname()}/{os.getpid()}"
        self._owned: dict[int, Owned] = {}
        self._careful: dict[int, int] = {}
        self._ahead = Ahead(self._owned, self._careful)
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
                    await _sleep(stopping, random() * LONGEST_TRUCE)
                    self._was_fenced = False
                await self._take_over()
                if self._to_take:
                    continue  # assigned meanwhile; the waiting below would forget that it was to be ended
                await self._ahead.some()
                async with self._between_batches:
                    await self._store(self._ahead.take(MAX_RECORDS))
            for task in beside:
                task.cancel()

    async def leave(self, _: object, error: BaseException | None, __: object) -> None:
        """We end, or begin anew, for a reason that is no record: that is not to look as if we had died of one."""
        if error is None or _is_passing(error):
            with suppress(psycopg.Error):
                for owned in self._owned.values():
                    await projections.rest(
                        self._connection, self._topics.frames, owned.partition, owned.epoch
                    )

    async def _belong(self) -> None:
        """Be a member of the group. A consumer says what its coordinator says, and believes that it is alive, while it
        is asked for records. It has none: all is paused, and read by the feed."""
        while True:
            await self._client.getmany(timeout_ms=QUIET_MS)
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
        for partition in sorted(self._to_take):
            taken = await partitions.take_over(
                self._connection, self._log, self._topics.frames, partition, self._owner
            )
            if partition not in self._to_take:
                continue  # revoked meanwhile
            self._to_take.discard(partition)
            self._owned[partition] = taken.owned
            if taken.lives > CAREFUL_AFTER:
                self._careful[partition] = taken.lives
                self._batches.all_on_disk = True
                _log.warning(
                    "careful", partition=partition, offset=taken.owned.next_offset, lives=taken.lives
                )
            self._feed.follow(partition, taken.owned.next_offset)
            left = await left_behind(self._connection, self._topics.frames, [partition])
            self._relay.hand_over(left)

    async def _store(self, look: Look) -> None:
        # What was read again for nothing but its marker may be stored by now.
        ends = {one: end for one, end in look.ends.items() if end > self._owned[one].next_offset}
        for chunk, positions in _chunks(look.found, ends, self._careful):
            try:
                self._relay.hand_over(await self._store_chunk(chunk, positions))
            except FencedError as fenced:
                _log.warning("fenced", partitions=sorted(fenced.partitions))
                # All of them: the consumer is past the records of the batches that do not come any more.
                self._retreat(set(ends))
                return
            # Whoever publishes one at a time waits for this; who publishes many does not notice.
            self._announcer.announce(positions, soon=len(chunk) > 1 or self._ahead.waits)
        for partition in ends:
            self._careful.pop(partition, None)

    async def _store_chunk(self, chunk: Sequence[Found], positions: dict[int, int]) -> list[OutboxRow]:
        partition = chunk[0][0].partition if chunk else None
        if partition not in self._careful:
            return await self._batches.store(chunk, self._owned, positions)
        lives, self._careful[partition] = self._careful[partition], 0
        if lives > PARK_AFTER:
            parked = await self._batches.park(chunk[0][0], self._owned, KillerError(lives))
            return parked + await self._batches.store([], self._owned, positions)
        return await self._batches.store(chunk, self._owned, positions)

    def _retreat(self, moved: set[int]) -> None:
        """After a fence nothing in memory can be trusted: take over anew what the group still gives us."""
        self._was_fenced = True
        self._cache.clear()
        self._take_anew(moved)

    def _take_anew(self, partitions: Iterable[int]) -> None:
        """Have those of these partitions taken over again that the group still gives us."""
        for partition in partitions:
            self._let_go(partition)
            if TopicPartition(self._topics.frames, partition) in self._client.assignment():
                self._to_take.add(partition)

    def _let_go(self, partition: int) -> None:
        self._owned.pop(partition, None)
        self._feed.leave(partition)
        self._ahead.forget(partition)
        self._to_take.discard(partition)
        self._careful.pop(partition, None)


def _chunks(
    found: Sequence[Found], ends: dict[int, int], careful: Container[int]
) -> Iterator[tuple[Sequence[Found], dict[int, int]]]:
    """Batches of bounded size, each with where its partitions stand after it; the last brings all to their ends.

    A record of a partition that needs care is a batch by itself.
    """
    chunk: list[Found] = []
    size = 0
    for one in found:
        record = one[0]
        alone = record.partition in careful
        if chunk and (alone or chunk[-1][0].partition in careful or size >= MAX_BATCH_BYTES):
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


def _is_passing(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(PASSING)[1] is None
    return isinstance(error, PASSING)


async def _connect(settings: Settings, name: str) -> AsyncConnection[Any]:
    options = " ".join(f"-c {setting}={value}" for setting, value in SESSION.items())
    address = access.database_address(
        settings, application_name=f"frameledger {name}", options=options, **KEEPALIVE
    )
    connection = await AsyncConnection.connect(address, autocommit=True)
    connection.prepared_max = PREPARED
    copying.prepare(connection)
    return connection


async def _sleep(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return

"""What the broker has of some partitions, handed on as it comes: who reads says when there is to be more.

aiokafka's consumer could do it too. It asks the broker for more as soon as it can, with several turns of the event loop
for each answer, and that is when its reader has something better to do: the asking alone takes as long as the fold.
Here one request is on its way to each broker at most, and the next one leaves when the reader has taken in the answer.
What is on the wire is aiokafka's, and so are connections, leaders and the reading of batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.protocol.metadata import MetadataRequest

from frameledger.record import Record
from frameledger_services import logs, transient
from frameledger_services.event_log.consumer import FETCH_BYTES, PARTITION_BYTES
from frameledger_services.event_log.fetch_protocol import QuickFetch
from frameledger_services.event_log.lenient_records import records as batches_of
from frameledger_services.event_log.topic_request import TopicsRequest, topics_in
from frameledger_services.event_log.topics import TopicDescription

QUIET_MS = 500
"""How long the broker keeps a request when there is nothing new; the first record that comes ends it."""

AGAIN_SECONDS = 0.1
"""Before a request is sent again that a broker could not answer."""

SLOW_SECONDS = 1.5
"""A request that takes longer than this has the other brokers asked who leads by now, and again after as long. It is
not given up: it may be a large answer on a slow line."""

FROZEN_SECONDS = 1.0
TICK_SECONDS = 0.25
"""Who could not look at the clock for so long cannot know what became of the log meanwhile. The broker's answer does
not always say: it may be asked next when the topic has been made anew and filled. To delete a topic and to make it
again takes longer than this, in all."""

_log = logs.get_logger("feed")


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition, and the offset that is read next."""

    partition: int
    offset: int
    is_in_doubt: bool = False
    """Whether there was a sign that the log may be another one than the one that was read: its broker did not answer,
    or said that it cannot give it now, as after a topic was deleted; or this process was frozen."""

    leader: int | None = None
    """The broker that gave what was read. A leader that is another one may have a shorter log."""


class Fetched:
    """What an answer has of one partition. It is read once, and only while the partition is still followed."""

    def __init__(self, feed: Feed, followed: _Followed, batches: _Batches, end: int) -> None:
        self.partition = followed.partition
        self.end = end
        """Behind the last record that the partition had at that time."""
        self._feed = feed
        self._followed = followed
        self._batches = batches
        # aiokafka's iterator cannot be asked again once it has ended. This one can.
        self._records = (record for record in batches)

    @property
    def offset(self) -> int:
        """Where the partition is read next: behind what was read, and behind a transaction's marker."""
        return self._followed.offset

    def some(self, at_most: int) -> list[Record] | None:
        """The next records; fewer than so many if there are no more.

        None when the partition is not followed from here on now: it was left, or another broker, who leads it by now,
        answered with the same. Raises `CorruptRecordException` for bytes that are none that a producer wrote.
        """
        if not self._feed.follows(self._followed) or self.offset != self._batches.next_fetch_offset:
            return None
        found = list(islice(self._records, at_most))
        self._followed.offset = self._batches.next_fetch_offset
        return found


class _Batches(PartitionRecords):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """What an answer has of one partition, as aiokafka reads it, but in records of ours from the beginning."""

    def _consumer_record(self, place: TopicPartition, read: Any) -> Record:
        return Record(
            place.topic,
            place.partition,
            read.offset,
            read.key,
            read.value,
            tuple(read.headers),
            read.timestamp,
        )


Receive = Callable[[Sequence[Fetched]], Awaitable[None]]
"""Takes in an answer, to its end; returns when there may be another. An answer without anything is told too."""

Doubt = Callable[[Mapping[int, int]], Awaitable[None]]
"""Hears of partitions, each with the offset that was next, that may be others than those that were read, and whose
broker answers again: with the log that we know; or after a power cut, or an unclean election, with one that lost its
newest records and got others in their place; or with that of a topic which was made anew. They are not read until they
are followed anew."""


@dataclass(slots=True)
class _Answer:
    """What an answer has."""

    fetched: list[Fetched] = field(default_factory=list)
    doubtful: dict[int, int] = field(default_factory=dict)
    """Partitions of which this is the first answer since there was a sign of another log, with the offset that was
    next."""

    is_whole: bool = True
    """Whether the broker could answer for each partition."""


class Feed:
    """The records of some partitions of a topic, from the offsets on that are given.

    It reads what was committed, and of several brokers side by side.
    """

    def __init__(self, client: Any, topic: str, tell: Sequence[Any] = ()) -> None:
        """`client` is a consumer of aiokafka: its connections are used, and nothing else of it. `tell` are views of the
        same cluster, aiokafka's `ClusterMetadata`, that are told too who leads what."""
        self._client = client._client
        self._told = (self._client.cluster, *tell)
        self._topic = topic
        self._followed: dict[int, _Followed] = {}
        self._silent: set[int] = set()
        """Brokers that did not answer when they were asked last. That is said once, and not ten times a second."""

        self._changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._asking: set[int] = set()
        """Brokers that are being asked who leads what."""

        self._ticked = 0.0

    def follow(self, partition: int, offset: int) -> None:
        """Read a partition from here on; what is on its way of it from elsewhere is dropped."""
        self._followed[partition] = _Followed(partition, offset)
        self._changed.set()

    def leave(self, partition: int) -> None:
        """Read a partition no longer. Nothing happens if it was not read."""
        self._followed.pop(partition, None)

    def follows(self, followed: _Followed) -> bool:
        return self._followed.get(followed.partition) is followed

    async def run(self, receive: Receive, doubt: Doubt) -> None:
        """Read until cancelled.

        A broker that is away is waited for, as is a leader. Raises, in a group, `OffsetOutOfRangeError` for an offset
        that the log does not have, and aiokafka's other errors for what waiting does not mend.
        """
        cluster = self._client.cluster
        cluster.add_listener(self._leaders_are_known)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._ticked = asyncio.get_running_loop().time()
                tasks.create_task(self._tick())
                reading: dict[int, asyncio.Task[None]] = {}
                while True:
                    self._changed.clear()
                    leaders = {self._leader(partition) for partition in self._followed}
                    for node in leaders:
                        if node is not None and (node not in reading or reading[node].done()):
                            reading[node] = tasks.create_task(self._read(node, receive, doubt))
                    if None in leaders:
                        await self._look_for_leaders()
                    else:
                        await self._changed.wait()
        finally:
            cluster.remove_listener(self._leaders_are_known)

    async def _read(self, node: int, receive: Receive, doubt: Doubt) -> None:
        """Read what a broker leads, for as long as it leads anything."""
        while asked := {
            number: one for number, one in self._followed.items() if self._leader(number) == node
        }:
            if not await self._ask(node, asked, receive, doubt):
                await self._look_for_leaders(node)

    async def topic(self, partition: int) -> TopicDescription | None:
        """What the topic is now, as the leader of a partition says; None if it is not there. Raises aiokafka's
        errors."""
        leader = self._leader(partition)
        node = self._client.get_random_node() if leader is None else leader
        answer = await self._client.send(node, TopicsRequest([self._topic]))
        return next(iter(topics_in(answer)), None)

    async def _ask(self, node: int, asked: Mapping[int, _Followed], receive: Receive, doubt: Doubt) -> bool:
        """One request and its answer; whether it is an answer for all that was asked."""
        offsets = {number: one.offset for number, one in asked.items()}
        try:
            with self._others_asked_if_slow(node):
                answer = await self._client.send(node, self._request(offsets))
        except kafka_errors.KafkaError as error:
            if not transient.is_retriable(error):
                raise
            if node not in self._silent:
                _log.warning(
                    "feed.broker_away",
                    broker=node,
                    reason=str(error),
                )
            self._silent.add(node)
            for one in asked.values():
                one.is_in_doubt = True
            return False
        self._silent.discard(node)
        self._doubt_if_frozen()
        read = self._taken_apart(node, answer, asked, offsets)
        await receive(read.fetched)
        if read.doubtful:
            await doubt(read.doubtful)
        return read.is_whole

    def _request(self, offsets: Mapping[int, int]) -> QuickFetch:
        places = [(number, offset, PARTITION_BYTES) for number, offset in offsets.items()]
        return QuickFetch(QUIET_MS, 1, FETCH_BYTES, READ_COMMITTED, [(self._topic, places)], rack_id="")

    def _taken_apart(
        self, node: int, answer: Any, asked: Mapping[int, _Followed], offsets: Mapping[int, int]
    ) -> _Answer:
        if answer.API_VERSION >= _WITH_ERROR and answer.error_code:
            raise _error(answer.error_code, self._topic)
        read = _Answer()
        for _, partitions in answer.topics:
            for number, error_code, end, *rest, raw in partitions:
                followed = asked[number]
                if not self.follows(followed):
                    continue
                leads = self._leader(number) == node
                if transient.is_retriable_code(error_code) or (error_code and not leads):
                    read.is_whole = False
                    followed.is_in_doubt = True
                    continue
                if followed.is_in_doubt or (leads and followed.leader not in (None, node)):
                    read.doubtful[number] = followed.offset
                    self.leave(number)
                    continue
                if error_code:
                    raise _error(error_code, self._shown(followed))
                if leads:
                    followed.leader = node
                if raw:
                    aborted = rest[2] if answer.API_VERSION >= _WITH_REPLICA else rest[-1]
                    # From where it was asked: if another broker has led further by now, this does not lead back.
                    batches = self._batches(followed, raw, aborted, offsets[number])
                    read.fetched.append(Fetched(self, followed, batches, end))
                    # The broker gives a large record only to the first partition that it is asked for.
                    self._followed[number] = self._followed.pop(number)
        return read

    def _batches(self, followed: _Followed, raw: bytes, aborted: Any, offset: int) -> _Batches:
        batches = batches_of(raw)
        if not batches.has_next():
            # By its protocol a broker gives the whole batch. Asking it again would get the same, at once.
            raise kafka_errors.RecordTooLargeError(
                f"The broker gave {len(raw)} bytes of {self._shown(followed)}, which are not a whole batch."
            )
        place = TopicPartition(self._topic, followed.partition)
        return _Batches(place, batches, aborted, offset, None, None, True, READ_COMMITTED)

    def _shown(self, followed: _Followed) -> str:
        return f"{self._topic}/{followed.partition} from {followed.offset} on"

    def _leader(self, partition: int) -> int | None:
        leader: int | None = self._client.cluster.leader_for_partition(TopicPartition(self._topic, partition))
        return None if leader == _NOBODY else leader

    async def _look_for_leaders(self, away: int | None = None) -> None:
        # Nobody waits for the answer, as it may be the broker that is away who is asked. `run` is told of it.
        self._client.force_metadata_update()
        self._ask_others(away)
        await asyncio.sleep(AGAIN_SECONDS)

    @contextmanager
    def _others_asked_if_slow(self, node: int) -> Iterator[None]:
        """While a broker does not answer, who leads its partitions by now is learned from the others; `run` then reads
        them there."""
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def is_slow() -> None:
            self._ask_others(node)
            timers[:] = [loop.call_later(SLOW_SECONDS, is_slow)]

        timers.append(loop.call_later(SLOW_SECONDS, is_slow))
        try:
            yield
        finally:
            timers[0].cancel()

    def _ask_others(self, away: int | None) -> None:
        """Ask every other broker who leads what, side by side: aiokafka asks one after the other, and waits long for
        one that is frozen."""
        assert self._tasks is not None, "it is running"
        for broker in self._client.cluster.brokers():
            if broker.nodeId != away and broker.nodeId not in self._asking:
                self._asking.add(broker.nodeId)
                self._tasks.create_task(self._learn_leaders(broker.nodeId))

    async def _learn_leaders(self, node: int) -> None:
        try:
            answer = await self._client.send(node, MetadataRequest([self._topic], False))
        except kafka_errors.KafkaError:
            return
        finally:
            self._asking.discard(node)
        if answer.brokers:
            for cluster in self._told:
                cluster.update_metadata(answer)

    async def _tick(self) -> None:
        while True:
            self._doubt_if_frozen()
            await asyncio.sleep(TICK_SECONDS)

    def _doubt_if_frozen(self) -> None:
        """What answers now may be another log than before, and say nothing of it."""
        now = asyncio.get_running_loop().time()
        if now - self._ticked > FROZEN_SECONDS:
            _log.warning("feed.process_stood_still", seconds=now - self._ticked)
            for one in self._followed.values():
                one.is_in_doubt = True
        self._ticked = now

    def _leaders_are_known(self, _: object) -> None:
        """Called for each answer, also for what others of this client asked: a partition may have moved silently."""
        self._changed.set()


def _error(code: int, what: str) -> Exception:
    error: Exception = kafka_errors.for_code(code)(
        f"The broker does not give {what}: error {code} of Kafka's."
    )
    return error


_NOBODY = -1
_WITH_ERROR = 7
"""From this version on an answer may be an error as a whole."""

_WITH_REPLICA = 11
"""From this version on an answer names, behind the aborted transactions, who else could be asked."""

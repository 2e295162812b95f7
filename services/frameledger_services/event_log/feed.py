"""The records of some partitions, fetched when their reader is ready for more.

aiokafka's consumer fetches as soon as it can, with several iterations of the event loop per answer, while its reader is
busy: fetching takes as long as the fold. Here each broker has at most one request in flight, and the next one is sent
when the reader has processed the answer. The protocol, connections, leaders and the decoding of batches are aiokafka's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import errors as kafka_errors
from aiokafka.consumer.fetcher import READ_COMMITTED

from frameledger_services import logs, transient
from frameledger_services.event_log.consumer import FETCH_BYTES, PARTITION_BYTES
from frameledger_services.event_log.fetch_protocol import QuickFetch
from frameledger_services.event_log.fetched_partition import FetchedPartition, FollowedPartition
from frameledger_services.event_log.leaders import Leaders
from frameledger_services.event_log.topic_request import TopicsRequest, topics_in
from frameledger_services.event_log.topics import TopicDescription

QUIET_MS = 500
"""How long the broker waits with its answer if there is nothing new; the first new record ends the wait."""

FROZEN_SECONDS = 1.0
TICK_SECONDS = 0.25
"""A process that could not read the clock for `FROZEN_SECONDS` cannot know what happened to the log meanwhile. The
broker's answer does not always show it: the topic may have been recreated and filled before the next request. Deleting
and recreating a topic takes longer than this."""

_log = logs.get_logger("feed")

Receive = Callable[[Sequence[FetchedPartition]], Awaitable[None]]
"""Processes an answer; the next request is sent when it returns. Also called for an empty answer."""

Revalidate = Callable[[Mapping[int, int]], Awaitable[None]]
"""Called with partitions, each with its next offset, whose broker is back after an outage, or whose leader changed.

The log may be the one that was read. But after a power failure or an unclean election it may have lost its newest
records and have others in their place, and the topic may have been recreated. These partitions are no longer read until
they are followed again.
"""


@dataclass(slots=True)
class _Answer:
    """The content of a fetch response."""

    fetched: list[FetchedPartition] = field(default_factory=list)
    to_revalidate: dict[int, int] = field(default_factory=dict)
    is_whole: bool = True
    """Whether the broker could answer for each partition."""


class Feed:
    """Reads partitions of a topic from given offsets on: committed records only, from several brokers concurrently."""

    def __init__(self, consumer: Any, topic: str, clusters: Sequence[Any] = ()) -> None:
        """Only the connections of aiokafka's `consumer` are used. `clusters` are other views of the same cluster,
        aiokafka's `ClusterMetadata`, that also receive new leaders."""
        self._client = consumer._client
        self._topic = topic
        self._leaders = Leaders(self._client, topic, clusters)
        self._followed: dict[int, FollowedPartition] = {}
        self._away: set[int] = set()
        """Brokers that did not answer their last request, which is logged once instead of ten times a second."""

        self._changed = asyncio.Event()
        self._ticked = 0.0

    def follow(self, partition: int, offset: int) -> None:
        """Read a partition from this offset on. Records that were fetched for another offset are dropped."""
        self.leave(partition)
        self._followed[partition] = FollowedPartition(self._topic, partition, offset)
        self._changed.set()

    def leave(self, partition: int) -> None:
        """Stop reading a partition. Does nothing if it is not read."""
        if (left := self._followed.pop(partition, None)) is not None:
            left.is_followed = False

    async def run(self, receive: Receive, revalidate: Revalidate) -> None:
        """Read until cancelled. Waits for an unreachable broker, and for a leader. Raises, in a group,
        `OffsetOutOfRangeError` for an offset that the log does not have, and aiokafka's other errors that are not
        transient.
        """
        cluster = self._client.cluster
        cluster.add_listener(self._on_metadata)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._leaders.tasks = tasks
                self._ticked = asyncio.get_running_loop().time()
                tasks.create_task(self._tick())
                reading: dict[int, asyncio.Task[None]] = {}
                while True:
                    self._changed.clear()
                    leaders = {self._leaders.of(partition) for partition in self._followed}
                    for node in leaders:
                        if node is not None and (node not in reading or reading[node].done()):
                            reading[node] = tasks.create_task(self._read(node, receive, revalidate))
                    if None in leaders:
                        await self._leaders.look_again()
                    else:
                        await self._changed.wait()
        finally:
            cluster.remove_listener(self._on_metadata)

    async def topic(self, partition: int) -> TopicDescription | None:
        """Returns the current description of the topic by the leader of a partition; None if the topic does not exist.
        Raises aiokafka's errors."""
        leader = self._leaders.of(partition)
        node = self._client.get_random_node() if leader is None else leader
        answer = await self._client.send(node, TopicsRequest([self._topic]))
        return next(iter(topics_in(answer)), None)

    async def _read(self, node: int, receive: Receive, revalidate: Revalidate) -> None:
        """Read the partitions that a broker leads, as long as it leads any."""
        while partitions := {
            number: one for number, one in self._followed.items() if self._leaders.of(number) == node
        }:
            if not await self._fetch(node, partitions, receive, revalidate):
                await self._leaders.look_again(node)

    async def _fetch(
        self, node: int, partitions: Mapping[int, FollowedPartition], receive: Receive, revalidate: Revalidate
    ) -> bool:
        """Send one request and receive its answer. Returns whether it answers for all partitions."""
        offsets = {number: one.offset for number, one in partitions.items()}
        try:
            response = await self._leaders.send(node, self._request(offsets))
        except kafka_errors.KafkaError as error:
            if not transient.is_retriable(error):
                raise
            if node not in self._away:
                _log.warning("feed.broker_away", broker=node, reason=str(error))
            self._away.add(node)
            for partition in partitions.values():
                partition.needs_revalidation = True
            return False
        self._away.discard(node)
        self._check_clock()
        answer = self._answer(node, response, partitions, offsets)
        await receive(answer.fetched)
        if answer.to_revalidate:
            await revalidate(answer.to_revalidate)
        return answer.is_whole

    def _request(self, offsets: Mapping[int, int]) -> QuickFetch:
        partitions = [(number, offset, PARTITION_BYTES) for number, offset in offsets.items()]
        return QuickFetch(QUIET_MS, 1, FETCH_BYTES, READ_COMMITTED, [(self._topic, partitions)], rack_id="")

    def _answer(
        self,
        node: int,
        response: Any,
        followed_partitions: Mapping[int, FollowedPartition],
        offsets: Mapping[int, int],
    ) -> _Answer:
        if response.API_VERSION >= _WITH_ERROR and response.error_code:
            raise _error(response.error_code, self._topic)
        answer = _Answer()
        for _, partitions in response.topics:
            for number, error_code, end, *rest, raw in partitions:
                followed = followed_partitions[number]
                if not followed.is_followed:
                    continue
                leads = self._leaders.of(number) == node
                if transient.is_retriable_code(error_code) or (error_code and not leads):
                    answer.is_whole = False
                    followed.needs_revalidation = True
                    continue
                if followed.needs_revalidation or (leads and followed.leader not in (None, node)):
                    answer.to_revalidate[number] = followed.offset
                    self.leave(number)
                    continue
                if error_code:
                    raise _error(error_code, str(followed))
                if leads:
                    followed.leader = node
                if raw:
                    aborted = rest[2] if response.API_VERSION >= _WITH_REPLICA else rest[-1]
                    answer.fetched.append(FetchedPartition(followed, raw, aborted, offsets[number], end))
                    # The broker returns a large record only for the first partition of a request.
                    self._followed[number] = self._followed.pop(number)
        return answer

    async def _tick(self) -> None:
        while True:
            self._check_clock()
            await asyncio.sleep(TICK_SECONDS)

    def _check_clock(self) -> None:
        """Revalidate all partitions after a freeze of this process: another log may answer, without any sign of it."""
        now = asyncio.get_running_loop().time()
        if now - self._ticked > FROZEN_SECONDS:
            _log.warning("feed.process_stood_still", seconds=now - self._ticked)
            for partition in self._followed.values():
                partition.needs_revalidation = True
        self._ticked = now

    def _on_metadata(self, _: object) -> None:
        """Called for each metadata response, including those to other requests: a partition may have moved without
        notice."""
        self._changed.set()


def _error(code: int, what: str) -> Exception:
    error: Exception = kafka_errors.for_code(code)(f"The broker did not return {what}: Kafka error {code}.")
    return error


_WITH_ERROR = 7
"""From this version on a response may be an error as a whole."""

_WITH_REPLICA = 11
"""From this version on the preferred read replica follows the aborted transactions."""

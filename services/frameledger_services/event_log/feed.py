"""What the broker has of some partitions, handed on as it comes: who reads says when there is to be more.

aiokafka's consumer could do it too. It asks the broker for more as soon as it can, with several turns of the event loop
for each answer, and that is when its reader has something better to do: the asking alone takes as long as the fold.
Here one request is on its way to each broker at most, and the next one leaves when the reader has taken in the answer.
What is on the wire is aiokafka's, and so are connections, leaders and the reading of batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.protocol.fetch import FetchRequest

from frameledger.record import Record
from frameledger_services.event_log.consumer import FETCH_BYTES, PARTITION_BYTES, to_record
from frameledger_services.event_log.lenient_records import records as batches_of

QUIET_MS = 500
"""How long the broker keeps a request when there is nothing new; the first record that comes ends it."""

AGAIN_SECONDS = 0.1
"""Before a request is sent again that a broker could not answer."""


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition, and the offset that is read next."""

    partition: int
    offset: int


class Fetched:
    """What an answer has of one partition. It is read once, and only while the partition is still followed."""

    def __init__(self, feed: Feed, followed: _Followed, records: Any, end: int) -> None:
        self.partition = followed.partition
        self.end = end
        """Behind the last record that the partition had at that time."""
        self._feed = feed
        self._followed = followed
        self._records = records

    @property
    def offset(self) -> int:
        """Where the partition is read next: behind what was read, and behind a transaction's marker."""
        return self._followed.offset

    def some(self, at_most: int) -> list[Record] | None:
        """The next records; fewer than so many if there are no more. None when the partition is not followed now."""
        if not self._feed.follows(self._followed):
            return None
        found = [to_record(received) for received in islice(self._records, at_most)]
        self._followed.offset = self._records.next_fetch_offset
        return found


Receive = Callable[[Sequence[Fetched]], Awaitable[None]]
"""Takes in an answer, to its end; returns when there may be another. An answer without anything is told too."""


class Feed:
    """The records of some partitions of a topic, from the offsets on that are given.

    It reads what was committed, and of several brokers side by side.
    """

    def __init__(self, client: Any, topic: str) -> None:
        """`client` is a consumer of aiokafka: its connections are used, and nothing else of it."""
        self._client = client._client
        self._topic = topic
        self._followed: dict[int, _Followed] = {}
        self._changed = asyncio.Event()

    def follow(self, partition: int, offset: int) -> None:
        """Read a partition from here on; what is on its way of it from elsewhere is dropped."""
        self._followed[partition] = _Followed(partition, offset)
        self._changed.set()

    def leave(self, partition: int) -> None:
        """Read a partition no longer. Nothing happens if it was not read."""
        self._followed.pop(partition, None)

    def follows(self, followed: _Followed) -> bool:
        return self._followed.get(followed.partition) is followed

    async def run(self, receive: Receive) -> None:
        """Read until cancelled.

        A broker that is away is waited for, as is a leader. Raises `OffsetOutOfRangeError` for an offset that the log
        does not have, and aiokafka's other errors for what waiting does not mend.
        """
        async with asyncio.TaskGroup() as tasks:
            reading: dict[int, asyncio.Task[None]] = {}
            while True:
                self._changed.clear()
                leaders = {self._leader(partition) for partition in self._followed}
                for node in leaders:
                    if node is not None and (node not in reading or reading[node].done()):
                        reading[node] = tasks.create_task(self._read(node, receive))
                if None in leaders:
                    await self._look_for_leaders()
                else:
                    await self._changed.wait()

    async def _read(self, node: int, receive: Receive) -> None:
        """Read what a broker leads, for as long as it leads anything."""
        while asked := {
            number: one for number, one in self._followed.items() if self._leader(number) == node
        }:
            try:
                answer = await self._client.send(node, self._request(asked))
            except kafka_errors.KafkaError:
                await self._look_for_leaders()
                continue
            fetched, has_moved = self._fetched(answer, asked)
            await receive(fetched)
            if has_moved:
                await self._look_for_leaders()

    def _request(self, asked: Mapping[int, _Followed]) -> FetchRequest:
        places = [(number, one.offset, PARTITION_BYTES) for number, one in asked.items()]
        return FetchRequest(QUIET_MS, 1, FETCH_BYTES, READ_COMMITTED, [(self._topic, places)], rack_id="")

    def _fetched(self, answer: Any, asked: Mapping[int, _Followed]) -> tuple[list[Fetched], bool]:
        """What an answer has of each partition, and whether one of them is led by another broker."""
        fetched: list[Fetched] = []
        has_moved = False
        for _, partitions in answer.topics:
            for number, error_code, end, *rest, raw in partitions:
                followed = asked[number]
                if not self.follows(followed):
                    continue
                if error_code in _ELSEWHERE:
                    has_moved = True
                elif error_code:
                    raise _error(error_code, TopicPartition(self._topic, number), followed.offset)
                elif raw:
                    aborted = rest[2] if answer.API_VERSION >= _WITH_REPLICA else rest[-1]
                    fetched.append(Fetched(self, followed, self._read_batches(followed, raw, aborted), end))
                    # The broker gives a large record only to the first partition that it is asked for.
                    self._followed[number] = self._followed.pop(number)
        return fetched, has_moved

    def _read_batches(self, followed: _Followed, raw: bytes, aborted: Any) -> Any:
        place = TopicPartition(self._topic, followed.partition)
        batches = batches_of(raw)
        return PartitionRecords(place, batches, aborted, followed.offset, None, None, True, READ_COMMITTED)

    def _leader(self, partition: int) -> int | None:
        leader: int | None = self._client.cluster.leader_for_partition(TopicPartition(self._topic, partition))
        return None if leader == _NOBODY else leader

    async def _look_for_leaders(self) -> None:
        await asyncio.sleep(AGAIN_SECONDS)
        await self._client.force_metadata_update()
        self._changed.set()


def _error(code: int, place: TopicPartition, offset: int) -> Exception:
    kind = kafka_errors.for_code(code)
    error: Exception = kind({place: offset} if kind is kafka_errors.OffsetOutOfRangeError else str(place))
    return error


_NOBODY = -1
_WITH_REPLICA = 11
"""From this version on an answer names, behind the aborted transactions, who else could be asked."""

_ELSEWHERE = frozenset(
    error.errno
    for error in (
        kafka_errors.NotLeaderForPartitionError,
        kafka_errors.UnknownTopicOrPartitionError,
        kafka_errors.LeaderNotAvailableError,
        kafka_errors.ReplicaNotAvailableError,
        kafka_errors.KafkaStorageError,
    )
)
"""What a broker says that does not lead a partition, or does not yet."""

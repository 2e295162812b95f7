"""A log in memory with the parts of Kafka that the projector needs: membership of a group, and a feed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from aiokafka import TopicPartition

from frameledger.record import Record
from frameledger_services.event_log.topics import TopicDescription


class Group:
    """The only member of a group, which has all partitions of a topic."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._places = {TopicPartition(topic, number) for number in range(partitions)}

    def assignment(self) -> set[TopicPartition]:
        return set(self._places)

    def pause(self, *places: TopicPartition) -> None:
        assert self._places.issuperset(places)

    def seek(self, place: TopicPartition, offset: int) -> None:
        assert place in self._places


class Followed:
    """A partition, and the offset that is read next."""

    def __init__(self, partition: int, offset: int) -> None:
        self.partition = partition
        self.offset = offset


class Feed:
    """A feed that returns everything in the log of the followed partitions. tests/contracts/test_logs.py verifies that
    it behaves like `event_log.feed`.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._followed: dict[int, Followed] = {}

    def follow(self, partition: int, offset: int) -> None:
        self._followed[partition] = Followed(partition, offset)

    def leave(self, partition: int) -> None:
        self._followed.pop(partition, None)

    def follows(self, followed: Followed) -> bool:
        return self._followed.get(followed.partition) is followed

    async def topic(self, partition: int) -> TopicDescription:
        """Returns the description of the topic, which never changes."""
        name = self._records[0].topic if self._records else "none"
        return TopicDescription(name, max(partition, *(one.partition for one in self._records)) + 1, 1, None)

    def answer(self) -> list[FetchedPartition]:
        """Returns what a broker would answer now."""
        return [FetchedPartition(self, followed, self._records) for followed in self._followed.values()]


class FetchedPartition:
    """The records of one partition in an answer."""

    def __init__(self, feed: Feed, followed: Followed, records: Sequence[Record]) -> None:
        self.partition = followed.partition
        here = [one for one in records if one.partition == followed.partition]
        self.end = here[-1].offset + 1 if here else 0
        self._feed = feed
        self._followed = followed
        self._left = iter([one for one in here if one.offset >= followed.offset])

    @property
    def offset(self) -> int:
        return self._followed.offset

    def read(self, at_most: int) -> list[Record] | None:
        if not self._feed.follows(self._followed):
            return None
        found = list(islice(self._left, at_most))
        if found:
            self._followed.offset = found[-1].offset + 1
        return found

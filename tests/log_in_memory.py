"""A log in memory, and what the projector needs of Kafka over it: a place in the group, and a feed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from aiokafka import TopicPartition

from frameledger.record import Record


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


class Feed:
    """Answers with all that the log has of the partitions that are followed."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records
        self._followed: dict[int, int] = {}

    def follow(self, partition: int, offset: int) -> None:
        self._followed[partition] = offset

    def leave(self, partition: int) -> None:
        self._followed.pop(partition, None)

    def answer(self) -> list[Fetched]:
        """What a broker would answer now."""
        return [Fetched(self, partition) for partition in self._followed]

    def end(self, partition: int) -> int:
        return sum(record.partition == partition for record in self._records)

    def read(self, partition: int, at_most: int) -> list[Record] | None:
        offset = self._followed.get(partition)
        if offset is None:
            return None
        left = (one for one in self._records if one.partition == partition and one.offset >= offset)
        found = list(islice(left, at_most))
        self._followed[partition] += len(found)
        return found

    def position(self, partition: int) -> int:
        return self._followed[partition]


class Fetched:
    """What an answer has of one partition."""

    def __init__(self, feed: Feed, partition: int) -> None:
        self.partition = partition
        self.end = feed.end(partition)
        self._feed = feed

    @property
    def offset(self) -> int:
        return self._feed.position(self.partition)

    def some(self, at_most: int) -> list[Record] | None:
        return self._feed.read(self.partition, at_most)

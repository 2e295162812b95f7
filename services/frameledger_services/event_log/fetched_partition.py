"""The records of one partition in a fetch response."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiokafka import TopicPartition
from aiokafka import errors as kafka_errors
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords

from frameledger.record import Record
from frameledger_services.event_log.lenient_records import records as batches_of


@dataclass(slots=True, eq=False)
class FollowedPartition:
    """A partition that is being read, and the next offset to read."""

    topic: str
    partition: int
    offset: int
    is_followed: bool = True
    """False once it was left, or followed from another offset, which creates another object."""

    needs_revalidation: bool = False
    """Whether the log may no longer be the one that was read: the broker did not answer or could not return the
    partition, as after a topic was deleted; or this process was frozen."""

    leader: int | None = None
    """The broker that returned what was read. Another leader may have a shorter log."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} from {self.offset} on"


class FetchedPartition:
    """The records of one partition in a response. They are read once, and only while the partition is followed."""

    def __init__(
        self, followed: FollowedPartition, raw: bytes, aborted: Any, asked_offset: int, end: int
    ) -> None:
        """Raises `RecordTooLargeError` if `raw` contains no complete batch."""
        batches = batches_of(raw)
        if not batches.has_next():
            # By the protocol a broker sends complete batches. Another request would immediately get the same.
            raise kafka_errors.RecordTooLargeError(
                f"The broker returned {len(raw)} bytes of {followed}, which are not a complete batch."
            )
        self.partition = followed.partition
        self.end = end
        """The partition's high watermark at that time."""
        self._followed = followed
        place = TopicPartition(followed.topic, followed.partition)
        # From the requested offset: if another broker has advanced it meanwhile, this does not move it back.
        self._batches = _Batches(place, batches, aborted, asked_offset, None, None, True, READ_COMMITTED)
        # aiokafka's iterator cannot be called again once it has ended. This one can.
        self._records = (record for record in self._batches)

    @property
    def offset(self) -> int:
        """The next offset to read: after what was read, and after a transaction's marker."""
        return self._followed.offset

    def read(self, at_most: int) -> list[Record] | None:
        """Returns the next records; fewer than `at_most` if there are no more.

        Returns None if the partition is no longer followed from here: it was left, or its new leader returned the same
        records. Raises `CorruptRecordException` for bytes that no producer wrote.
        """
        if not self._followed.is_followed or self.offset != self._batches.next_fetch_offset:
            return None
        records = list(islice(self._records, at_most))
        self._followed.offset = self._batches.next_fetch_offset
        return records


class _Batches(PartitionRecords):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """aiokafka's reader of batches, which directly creates our records."""

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

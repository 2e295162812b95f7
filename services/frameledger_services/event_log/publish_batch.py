"""The records of one call of `publish`, and the position of each on the log once it is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka import errors as kafka_errors

from frameledger.record import LogPosition, Outgoing
from frameledger_services.event_log.compression import batch_size
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.event_log.sender import LARGEST
from frameledger_services.event_log.topics import TopicDescription, home_partition

_OVERHEAD = 1_024
"""An upper bound for the bytes of a Kafka batch of one record without its key, value and headers."""


class PublishBatch:
    """Records of one topic, written in the given order. A record is identified by its index.

    Raises `TooLargeError` if one is larger than any topic accepts.
    """

    def __init__(self, topic: str, records: Sequence[Outgoing]) -> None:
        self.topic = topic
        self.records = records
        self.places: list[LogPosition | None] = [None] * len(records)
        """The position of each record; None until it is acknowledged."""

        self.logged_ms: list[int | None] = [None] * len(records)
        """When each was logged, in milliseconds since 1970; None until it is acknowledged."""

        self.sizes = [_size(record) for record in records]
        """In bytes, before compression."""

        self._largest = max(self.sizes, default=0)
        if self._largest > LARGEST:
            raise TooLargeError(
                f"A record of {self._largest} bytes for {topic} is too large; nothing was published. The "
                f"maximum is {LARGEST} bytes.",
                self.places,
            )

    @property
    def pending(self) -> list[int]:
        """The records that are not acknowledged."""
        return [index for index, place in enumerate(self.places) if place is None]

    def pending_partitions(self, partitions: int) -> set[int]:
        """Returns the partitions of the pending records, in a topic with this number of partitions."""
        return {home_partition(self.records[index].key, partitions) for index in self.pending}

    def may_exceed_limit(self, topic: TopicDescription) -> bool:
        """Returns whether a record may be larger than the topic's `max.message.bytes`."""
        limit = topic.max_message_bytes
        return limit is not None and self._largest + _OVERHEAD > limit

    def check_limit(self, topic: TopicDescription) -> None:
        """Raise `TooLargeError` for a record that is too large for the topic. To measure a record, it is compressed."""
        limit = topic.max_message_bytes
        if limit is None:
            return
        for record, size in zip(self.records, self.sizes, strict=True):
            if size + _OVERHEAD > limit and (sent_bytes := batch_size(record)) > limit:
                raise TooLargeError(
                    f"A record is larger than {self.topic} accepts: {sent_bytes} bytes as it is sent, and "
                    f"max.message.bytes is {limit}; nothing was published. `frameledger topics` says whether that is "
                    "what it should be.",
                    self.places,
                )

    def acknowledge(self, answers: Iterable[tuple[int, asyncio.Future[Any]]]) -> list[BaseException]:
        """Store the positions of acknowledged records. Returns the errors of the others that have an answer."""
        failures = []
        for index, answer in answers:
            if not answer.done() or answer.cancelled():
                continue
            if (failure := answer.exception()) is not None:
                failures.append(failure)
            elif (offset := (written := answer.result()).offset) >= 0:
                self.places[index] = LogPosition(self.topic, written.partition, offset)
                self.logged_ms[index] = written.timestamp
            # Negative: it was sent twice, and the broker no longer has the first offset. It is sent once more and then
            # has a position.
        return failures


def failure_of(answer: asyncio.Future[Any]) -> BaseException | None:
    """Returns why a record was not written, given its answer; None if it was written."""
    return kafka_errors.KafkaError("given up") if answer.cancelled() else answer.exception()


def _size(record: Outgoing) -> int:
    size = len(record.key) + len(record.value)
    for name, value in record.headers:
        # Their lengths take at most ten bytes.
        size += len(name) + len(value) + 10 if value else len(name) + 10
    return size

"""Reads a topic without a consumer group, which changes nothing on the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from frameledger.record import LogPosition, Record
from frameledger_services.event_log.broker import BrokerError, connect
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import consumer, to_record
from frameledger_services.settings import Settings

AT_ONCE = 1_000
LOOK_MS = 500

SILENT_SECONDS = 30.0
"""The maximum time without progress before the end."""


async def last_records(
    settings: Settings, topic: str, count: int, *, follow: bool = False
) -> AsyncGenerator[Record, None]:
    """Yields the last `count` records of a topic, over all partitions, by their log time; then, with `follow`, new ones
    for ever.

    The records of each partition are in order. There are fewer if transactions left markers at the end, which count.
    Raises `BrokerError` if no broker answers or the topic does not exist.
    """
    async with connect(settings) as broker:
        description = await broker.topic(topic)
    partitions = [TopicPartition(topic, number) for number in range(description.partitions)]
    reader = consumer(settings, name="frameledger-tail")
    try:
        await reader.start()
        reader.assign(partitions)
        async with aclosing(_read(reader, partitions, count, follow)) as records:
            async for record in records:
                yield record
    except KafkaError as error:
        raise BrokerError(f"{topic} cannot be read: {error!r}") from error
    finally:
        await closed(reader.stop())


async def records_from(settings: Settings, place: LogPosition) -> list[Record]:
    """Returns all records of a partition from this position to its current end, in order.

    Raises `BrokerError` if the broker does not return them.
    """
    return [record async for record in records_between(settings, place, None)]


def partition_records(
    settings: Settings, topic: str, partition: int, first: int, end: int | None
) -> AsyncGenerator[Record, None]:
    """`records_between`, without those that have expired."""
    return records_between(settings, LogPosition(topic, partition, first), end, may_have_expired=True)


async def records_between(
    settings: Settings, place: LogPosition, end: int | None, *, may_have_expired: bool = False
) -> AsyncGenerator[Record, None]:
    """Yields the records of a partition from this position up to `end` (excluded), its current end if None, in order.
    If records `may_have_expired`, also while others are read, those are skipped.

    Raises `BrokerError` if the broker does not return them, or returns nothing for `SILENT_SECONDS`.
    """
    now = asyncio.get_running_loop().time
    partition = TopicPartition(place.topic, place.partition)
    reader = consumer(settings, name="frameledger-browse")
    try:
        await reader.start()
        reader.assign([partition])
        if end is None:
            end = int((await reader.end_offsets([partition]))[partition])
        first = place.offset
        if may_have_expired:
            first = max(first, int((await reader.beginning_offsets([partition]))[partition]))
        reader.seek(partition, first)
        reached, since = first, now()
        while (position := await reader.position(partition)) < end:
            if position > reached:
                reached, since = position, now()
            elif now() - since > SILENT_SECONDS:
                raise BrokerError(
                    f"The broker returns nothing of {place.topic}/{place.partition} from {position} on, and it ends at "
                    f"{end}. Check the broker with `frameledger doctor`."
                )
            try:
                received = await _next(reader)
            except OffsetOutOfRangeError:
                first = int((await reader.beginning_offsets([partition]))[partition])
                if not may_have_expired or first <= position:
                    raise
                reader.seek(partition, first)
                continue
            for record in received:
                if record.offset < end:
                    yield record
    except KafkaError as error:
        raise BrokerError(f"{place.topic} cannot be read: {error!r}") from error
    finally:
        await closed(reader.stop())


async def _read(
    reader: Any, partitions: list[TopicPartition], count: int, follow: bool
) -> AsyncGenerator[Record, None]:
    first, end = await reader.beginning_offsets(partitions), await reader.end_offsets(partitions)
    for partition in partitions:
        reader.seek(partition, max(first[partition], end[partition] - count))
    last: list[Record] = []
    # By position, not by offset: the last offsets may be markers of transactions, which are not returned.
    while [one for one in partitions if await reader.position(one) < end[one]]:
        last += await _next(reader)
    last.sort(key=lambda record: record.timestamp_ms or 0)
    for record in last[-count:] if count else []:
        yield record
    while follow:
        for record in await _next(reader):
            yield record


async def _next(reader: Any) -> list[Record]:
    received = await reader.getmany(timeout_ms=LOOK_MS, max_records=AT_ONCE)
    return [to_record(one) for of_partition in received.values() for one in of_partition]

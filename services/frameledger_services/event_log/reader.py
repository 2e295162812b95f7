"""Looking at a topic without being anybody: its last records, and those that come. Changes nothing on the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from frameledger.record import Place, Record
from frameledger_services.event_log.broker import BrokerError, connect
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import consumer, to_record
from frameledger_services.settings import Settings

AT_ONCE = 1_000
LOOK_MS = 500

SILENT_SECONDS = 30.0
"""How long a broker that has more may give nothing of it."""


async def last_records(
    settings: Settings, topic: str, count: int, *, follow: bool = False
) -> AsyncGenerator[Record, None]:
    """The last `count` records of a topic, over all partitions, by the time when they were logged; then, with
    `follow`, those that come, for ever.

    Of each partition they are in order. They are fewer where transactions left their markers at the end, since these
    are counted. Raises `BrokerError` when no broker answers or there is no such topic.
    """
    async with connect(settings) as broker:
        found = await broker.topic(topic)
    partitions = [TopicPartition(topic, number) for number in range(found.partitions)]
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


async def records_from(settings: Settings, place: Place) -> list[Record]:
    """All records of a partition from this place to its present end, in order. They are held in memory.

    Raises `BrokerError` when the broker does not give them.
    """
    return [record async for record in records_between(settings, place, None)]


async def records_between(settings: Settings, place: Place, end: int | None) -> AsyncGenerator[Record, None]:
    """The records of a partition from this place on and below an offset, in order; its present end if none is given.

    Raises `BrokerError` when the broker does not give them, or gives nothing for `SILENT_SECONDS`.
    """
    now = asyncio.get_running_loop().time
    partition = TopicPartition(place.topic, place.partition)
    reader = consumer(settings, name="frameledger-browse")
    try:
        await reader.start()
        reader.assign([partition])
        if end is None:
            end = int((await reader.end_offsets([partition]))[partition])
        reader.seek(partition, place.offset)
        reached, since = place.offset, now()
        while (position := await reader.position(partition)) < end:
            if position > reached:
                reached, since = position, now()
            elif now() - since > SILENT_SECONDS:
                raise BrokerError(
                    f"The broker gives nothing of {place.topic}/{place.partition} from {position} on, and it ends at "
                    f"{end}. Look whether it is there: `frameledger doctor`."
                )
            for record in await _next(reader):
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
    # By position, not by offset: the last offsets may be the markers of transactions, which no one is given.
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

"""A log probe: reads offsets and single records of a topic, without a consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import LeaderNotAvailableError

from frameledger.record import Record
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import consumer, to_record
from frameledger_services.event_log.failover import NO_LEADER
from frameledger_services.settings import Settings

LOOK_SECONDS = 15.0


class LogProbe:
    """A consumer of one topic without a group, made by `open_probe`. One call at a time."""

    def __init__(self, client: Any, topic: str) -> None:
        self._client = client
        self._topic = topic

    @property
    def cluster(self) -> Any:
        """The metadata that this client has: aiokafka's `ClusterMetadata`."""
        return self._client._client.cluster

    async def offsets(self, partition: int) -> tuple[int, int]:
        """Returns a partition's first offset, and its last stable offset: behind its last committed record. Raises
        `LeaderNotAvailableError` at once if it has no leader, for which aiokafka would wait."""
        place = TopicPartition(self._topic, partition)
        async with asyncio.timeout(LOOK_SECONDS):
            if self.cluster.leader_for_partition(place) == NO_LEADER:
                await self._client._client.force_metadata_update()
                if self.cluster.leader_for_partition(place) == NO_LEADER:
                    raise LeaderNotAvailableError(f"{self._topic}/{partition} has no leader")
            first = await self._client.beginning_offsets([place])
            end = await self._client.end_offsets([place])
        return int(first[place]), int(end[place])

    async def ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns the last stable offset of each of these partitions, in one request."""
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        async with asyncio.timeout(LOOK_SECONDS):
            ends = await self._client.end_offsets(places)
        return {place.partition: int(end) for place, end in ends.items()}

    async def record_at(self, partition: int, offset: int) -> Record | None:
        """Returns the record at an offset, None if there is none. Raises TimeoutError if the broker does not answer."""
        place = TopicPartition(self._topic, partition)
        self._client.assign([place])
        self._client.seek(place, offset)
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                while True:
                    fetched = await self._client.getmany(timeout_ms=500, max_records=1)
                    for received in fetched.get(place, ()):
                        record = to_record(received)
                        return record if record.offset == offset else None
                    if await self._client.position(place) > offset:
                        return None
        finally:
            self._client.unsubscribe()


@asynccontextmanager
async def open_probe(settings: Settings, topic: str) -> AsyncIterator[LogProbe]:
    """A probe of a topic, connected for as long as the block lasts."""
    client = consumer(settings, name="frameledger-looking")
    try:
        await client.start()
        yield LogProbe(client, topic)
    finally:
        await closed(client.stop())

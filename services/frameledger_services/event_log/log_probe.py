"""A log probe: reads offsets and single records of a topic, without a consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, LeaderNotAvailableError

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
        """The metadata of this client: aiokafka's `ClusterMetadata`."""
        return self._client._client.cluster

    async def offsets(self, partition: int) -> tuple[int, int]:
        """Returns a partition's first offset, and its last stable offset, which is after its last committed record.
        Raises `LeaderNotAvailableError` at once if it has no leader; aiokafka would wait for one."""
        place = TopicPartition(self._topic, partition)
        async with asyncio.timeout(LOOK_SECONDS):
            if not await self._by_leader([place]):
                raise LeaderNotAvailableError(f"{self._topic}/{partition} has no leader")
            first = await self._client.beginning_offsets([place])
            end = await self._client.end_offsets([place])
        return int(first[place]), int(end[place])

    async def ends(self, partitions: Iterable[int], deadline: float) -> dict[int, int]:
        """Returns the last stable offsets of those of these partitions whose leader answers by the deadline, a time of
        the loop's clock, with one request to each leader. If none answers, raises the error of one of them."""
        async with asyncio.timeout_at(deadline):
            led = await self._by_leader(TopicPartition(self._topic, partition) for partition in partitions)
        if not led:
            raise LeaderNotAvailableError(f"no partition of {self._topic} has a leader")
        found: dict[int, int] = {}
        failure: Exception | None = None
        for answer in await asyncio.gather(*(self._ends_at(places, deadline) for places in led.values())):
            if isinstance(answer, Exception):
                failure = answer
            else:
                found |= answer
        if not found and failure is not None:
            raise failure
        return found

    async def _ends_at(self, places: Sequence[TopicPartition], deadline: float) -> dict[int, int] | Exception:
        """Returns the last stable offsets of partitions of one leader, or the error if it does not answer."""
        try:
            async with asyncio.timeout_at(deadline):
                ends = await self._client.end_offsets(places)
        except (KafkaError, TimeoutError) as error:
            return error
        return {place.partition: int(end) for place, end in ends.items()}

    async def _by_leader(self, places: Iterable[TopicPartition]) -> dict[Any, list[TopicPartition]]:
        """Returns these partitions by their leaders, without those that have no leader, or do not exist, even in new
        metadata."""
        wanted = list(places)
        if not all(map(self._is_led, wanted)):
            await self._client._client.force_metadata_update()
        led: dict[Any, list[TopicPartition]] = {}
        for place in filter(self._is_led, wanted):
            led.setdefault(self.cluster.leader_for_partition(place), []).append(place)
        return led

    def _is_led(self, place: TopicPartition) -> bool:
        return self.cluster.leader_for_partition(place) not in (None, NO_LEADER)

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
async def open_probe(settings: Settings, topic: str, *, uncommitted: bool = False) -> AsyncIterator[LogProbe]:
    """Yields a probe of a topic that is connected for the duration of the block. With `uncommitted` its last stable
    offsets are high watermarks, which are also after records of open transactions and everything that follows them."""
    isolation = "read_uncommitted" if uncommitted else "read_committed"
    client = consumer(settings, name="frameledger-looking", isolation_level=isolation)
    try:
        await client.start()
        yield LogProbe(client, topic)
    finally:
        await closed(client.stop())

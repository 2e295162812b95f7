"""A cluster of brokers in memory, which replaces aiokafka's client for our feed.

Metadata, requests, responses and batches are aiokafka's own. The rules by which a broker answers a fetch are Kafka's,
as far as one consumer sees them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from typing import Any

from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v1
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from aiokafka.record.util import calc_crc32c
from tests.support.turns import turns

COMMIT, ABORT = 1, 0
NO_ERROR, OUT_OF_RANGE, NOT_LEADER = 0, 1, 6
NOBODY = -1

_CONTROL = 0x20


class Brokers:
    """Some brokers, each of which leads some partitions of one topic. This object is also the consumer and the client
    of aiokafka. `leaders` is the actual state; `cluster` is what the client believes, which is updated by `tell` or
    when it asks.
    """

    def __init__(self, topic: str, leaders: Mapping[int, int], request_class: Any = FetchRequest_v11) -> None:
        self.leaders = dict(leaders)
        self.away: set[int] = set()
        self.held: dict[int, asyncio.Event] = {}
        """Brokers whose responses are delayed until the event is set; their content does not change meanwhile."""
        self.errors: dict[int, int] = {}
        """Partitions that are answered with an error."""
        self.answers_metadata = True
        self.asked: list[tuple[int, dict[int, int]]] = []
        """Every fetch: the broker, and the offset of each partition that it named."""
        self.metadata_asked = 0
        self.asked_who_leads: list[int] = []
        """Brokers that were asked for metadata individually, besides the client's own requests."""
        self.cluster: Any = ClusterMetadata()
        self._topic = topic
        self._request_class = request_class
        self._logs: dict[int, _Log] = {partition: _Log() for partition in leaders}
        self._changed = asyncio.Event()
        self._quiets = 0
        self.tell()

    @property
    def _client(self) -> Brokers:
        return self

    def append(self, partition: int, *values: bytes | None, producer: int | None = None) -> None:
        """Append a batch, in a producer's transaction if one is given. None stands for a compacted record."""
        self._logs[partition].append(values, producer)
        self.change()

    def end(self, partition: int, producer: int, how: int) -> None:
        """Append the marker that commits or aborts a producer's transaction."""
        self._logs[partition].mark(producer, how)
        self.change()

    def change(self, **attributes: Any) -> None:
        """Record a change: brokers that hold a request check again."""
        for name, value in attributes.items():
            setattr(self, name, value)
        self._changed.set()
        self._changed = asyncio.Event()

    def quiet(self) -> None:
        """Answer every held request, as after a long time without new records."""
        self._quiets += 1
        self.change()

    def tell(self) -> None:
        """Update the client's metadata with the leaders of all partitions."""
        self.cluster.update_metadata(self._metadata())

    def _metadata(self) -> Any:
        brokers = [(node, "localhost", 9000 + node, None) for node in {*self.leaders.values()} - {NOBODY}]
        partitions: list[Any] = [(0, number, leader, [], []) for number, leader in self.leaders.items()]
        return MetadataResponse_v1(
            brokers or [(99, "localhost", 1, None)], 0, [(0, self._topic, False, partitions)]
        )

    def force_metadata_update(self) -> asyncio.Future[None]:
        self.metadata_asked += 1
        future = asyncio.get_running_loop().create_future()
        if self.answers_metadata:
            asyncio.get_running_loop().call_soon(self._answer_metadata, future)
        return future

    async def send(self, node: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            return await self._say_who_leads(node)
        built = request.build(self._request_class)
        ((_, places),) = built.topics
        at_offset = _COLUMNS[built.API_VERSION]
        asked = {place[0]: place[at_offset] for place in places}
        most = {place[0]: place[-1] for place in places}
        self.asked.append((node, asked))
        quiets = self._quiets
        found: list[Any] = []
        # The round trip to the broker.
        await turns(1)
        while node not in self.away:
            changed = self._changed
            found = self._answer(node, asked, most, built.max_bytes)
            if self._quiets > quiets or any(error or raw for _, error, _, _, raw in found):
                break
            await changed.wait()
        if node in self.held:
            await self.held[node].wait()
        if node in self.away:
            raise KafkaConnectionError(f"Connection at broker {node} closed")
        return self._response(built, found)

    async def _say_who_leads(self, node: int) -> Any:
        self.asked_who_leads.append(node)
        await turns(1)
        if node in self.held:
            await self.held[node].wait()
        if node in self.away or not self.answers_metadata:
            raise KafkaConnectionError(f"Connection at broker {node} closed")
        return self._metadata()

    def _answer(self, node: int, asked: dict[int, int], most: dict[int, int], room: int) -> list[Any]:
        found: list[Any] = []
        for partition, offset in asked.items():
            log = self._logs[partition]
            raw, error = b"", self.errors.get(partition, NO_ERROR)
            if self.leaders[partition] != node:
                error = error or NOT_LEADER
            elif not 0 <= offset <= log.end:
                error = error or OUT_OF_RANGE
            elif not error:
                # The first partition with records returns at least one batch, however large.
                raw = log.read(offset, min(most[partition], room), any(one[-1] for one in found))
                room -= min(len(raw), room)
            found.append((partition, error, log.end, log.aborted_from(offset), raw))
        return found

    def _response(self, built: Any, found: list[Any]) -> Any:
        version = built.API_VERSION
        partitions = []
        for partition, error, end, aborted, raw in found:
            between: tuple[Any, ...] = (end, aborted)
            if version >= 5:
                between = (end, 0, aborted)
            if version >= 11:
                between = (*between, -1)
            partitions.append((partition, error, end, *between, raw))
        head = (0, 0, 0) if version >= 7 else (0,)
        response = built.RESPONSE_TYPE(*head, [(self._topic, partitions)])
        return built.RESPONSE_TYPE.decode(response.encode())

    def _answer_metadata(self, future: asyncio.Future[None]) -> None:
        self.tell()
        if not future.done():
            future.set_result(None)


_COLUMNS = {4: 1, 5: 1, 11: 2}
"""The index of the offset in a request's tuple of a partition, by the version of the request."""


class _Log:
    """The batches of one partition."""

    def __init__(self) -> None:
        self.end = 0
        self._batches: list[tuple[int, bytes]] = []
        self._begun: dict[int, int] = {}
        self._aborted: list[tuple[int, int, int]] = []

    def append(self, values: tuple[bytes | None, ...], producer: int | None) -> None:
        builder = _builder(producer)
        for number, value in enumerate(values):
            if value is not None:
                builder.append(number, 1_000, b"key", value, [])
        if producer is not None:
            self._begun.setdefault(producer, self.end)
        self._add(bytearray(builder.build()), len(values), 0)

    def mark(self, producer: int, how: int) -> None:
        builder = _builder(producer)
        builder.append(0, 1_000, struct.pack(">hh", 0, how), bytes(6), [])
        begun = self._begun.pop(producer)
        if how == ABORT:
            self._aborted.append((producer, begun, self.end))
        self._add(bytearray(builder.build()), 1, _CONTROL)

    def read(self, offset: int, most: int, is_bounded: bool) -> bytes:
        """Returns whole batches, beginning with the one that has the offset, but none of open transactions."""
        stable = min(self._begun.values(), default=self.end)
        read = b""
        for last, batch in self._batches:
            if offset <= last < stable:
                if (read or is_bounded) and len(read) + len(batch) > most:
                    break
                read += batch
        return read

    def aborted_from(self, offset: int) -> list[tuple[int, int]]:
        return [(producer, begun) for producer, begun, marker in self._aborted if marker >= offset]

    def _add(self, batch: bytearray, count: int, attributes: int) -> None:
        struct.pack_into(">q", batch, 0, self.end)
        batch[22] |= attributes
        struct.pack_into(">i", batch, 23, count - 1)
        struct.pack_into(">I", batch, 17, calc_crc32c(bytes(batch[21:])))
        self.end += count
        self._batches.append((self.end - 1, bytes(batch)))


def _builder(producer: int | None) -> Any:
    producer_id, epoch = (-1, -1) if producer is None else (producer, 0)
    return _DefaultRecordBatchBuilderPy(2, 0, producer is not None, producer_id, epoch, -1, 1 << 30)

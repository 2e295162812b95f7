"""The prefetch buffer: decodes records while the previous batch is being stored.

Its content may be lost at any time: the partition's next owner reads again whatever was not stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from frameledger.record import FIRST_GENERATION, Record
from frameledger_services.projector.decoded import FetchedRecord, decode_record
from frameledger_services.projector.metrics import ProjectorMetrics, clock
from frameledger_services.projector.ownership import OwnedPartitions
from frameledger_services.projector.watchdog import TimeLimit

CHUNK_RECORDS = 200
"""Number of records in a chunk. Decoding more at once would delay the next batch once the database has answered."""

BACKLOG_RECORDS = 1_000
"""At this number of buffered records more are requested at once: in a backlog, throughput matters more than latency."""

MAX_RECORDS = 4_000
MAX_BYTES = 8 * 1024 * 1024
"""The limits of the buffer, whichever is reached first. A chunk that was begun below them is completed."""


class FetchedRecords(Protocol):
    """The records of one partition in a broker's answer: `event_log.fetched_partition`."""

    partition: int
    end: int

    @property
    def offset(self) -> int: ...

    def read(self, at_most: int) -> Sequence[Record] | None: ...


@dataclass(slots=True)
class RecordChunk:
    """Some records, and the next offset of each partition after them, which may be that after a transaction's
    marker."""

    records: list[FetchedRecord] = field(default_factory=list)
    next_offsets: dict[int, int] = field(default_factory=dict)
    size: int = 0


class Prefetch:
    """Chunks of partitions that were `owned` when they were fetched, in order.

    Records of a partition that must not be decoded here (`may_decode`), because one of them may crash the process, are
    decoded with their batch.
    """

    def __init__(
        self,
        owned: OwnedPartitions,
        may_decode: Callable[[int], bool],
        metrics: ProjectorMetrics | None = None,
    ) -> None:
        self._owned = owned
        self._metrics = metrics or ProjectorMetrics()
        self._may_decode = may_decode
        self._chunks: deque[RecordChunk] = deque()
        self._records = 0
        self._size = 0
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()

    async def receive(self, fetched: Sequence[FetchedRecords]) -> None:
        """Buffer an answer. Returns when all of it is buffered, and either there is a backlog or a batch has been read
        since.

        A fetch request takes as long as a fold, and its answer includes what arrives in the meantime. So the batch is
        sent to the database first, and the broker is queried while the database is busy.
        """
        for chunk in self._read(fetched):
            self._chunks.append(chunk)
            self._records += len(chunk.records)
            self._size += chunk.size
            self._arrived.set()
            await asyncio.sleep(0)
            while self._records >= MAX_RECORDS or self._size >= MAX_BYTES:
                await self._until_taken()
        if self._chunks and self._records < BACKLOG_RECORDS:
            await self._until_taken()

    async def until_ready(self) -> None:
        """Wait until there is a chunk, or until `wake`."""
        if not self._chunks:
            self._arrived.clear()
            await self._arrived.wait()

    def read(self, at_most: int) -> RecordChunk:
        """Returns all that is buffered, in order, up to the chunk that brings it to `at_most` records."""
        taken = RecordChunk()
        while self._chunks and len(taken.records) < at_most:
            chunk = self._chunks.popleft()
            taken.records += chunk.records
            taken.next_offsets |= chunk.next_offsets
            taken.size += chunk.size
        self._records -= len(taken.records)
        self._size -= taken.size
        self._taken.set()
        return taken

    @property
    def has_chunks(self) -> bool:
        """Whether anything is buffered."""
        return bool(self._chunks)

    def wake(self) -> None:
        """Make `until_ready` return: there is other work."""
        self._arrived.set()

    def drop(self, partition: int) -> None:
        """Drop the records of a partition that is no longer owned, or that is read again."""
        for chunk in self._chunks:
            before = len(chunk.records)
            chunk.records = [one for one in chunk.records if one[0].partition != partition]
            chunk.next_offsets.pop(partition, None)
            self._records -= before - len(chunk.records)

    def _read(self, fetched: Sequence[FetchedRecords]) -> Iterator[RecordChunk]:
        """Yields an answer in chunks of bounded size, without partitions that are no longer owned."""
        chunk = RecordChunk()
        for one in fetched:
            while (owned := self._owned.get(one.partition)) is not None:
                room = CHUNK_RECORDS - len(chunk.records)
                records = one.read(room)
                if records is None:
                    break
                if owned.generation != FIRST_GENERATION:
                    records = [replace(record, generation=owned.generation) for record in records]
                self._add(chunk, records)
                owned.end_offset = one.end
                if one.offset > owned.next_offset:
                    chunk.next_offsets[one.partition] = one.offset
                if len(records) < room:
                    break
                yield chunk
                chunk = RecordChunk()
        if chunk.next_offsets:
            yield chunk

    def _add(self, chunk: RecordChunk, records: Sequence[Record]) -> None:
        began = clock()
        with TimeLimit():
            chunk.records += [
                decode_record(one) if self._may_decode(one.partition) else (one, None) for one in records
            ]
        self._metrics.decode.observe(clock() - began)
        chunk.size += sum(len(one.value or b"") for one in records)

    async def _until_taken(self) -> None:
        self._taken.clear()
        await self._taken.wait()

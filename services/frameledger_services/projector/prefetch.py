"""Reading ahead: what the broker hands out is decoded while the batch before is being stored.

Nothing here is promised to anybody: what was read and not stored is read again by the partition's next owner.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from frameledger.record import FIRST_GENERATION, Record
from frameledger_services.projector.batches import OwnedPartition
from frameledger_services.projector.decoded import FetchedRecord, decode_record
from frameledger_services.projector.watchdog import deadline

CHUNK_RECORDS = 200
"""Records of one look; the decoding of more would keep the batch under way from going on when it is answered."""

BACKLOG_RECORDS = 1_000
"""With so many waiting the broker is asked for more at once: there is a backlog, and nobody waits for the last."""

MAX_RECORDS = 4_000
MAX_BYTES = 8 * 1024 * 1024
"""What may wait here decoded, whichever is less; a look that was begun when there was less is finished."""


class FetchedPartition(Protocol):
    """What an answer of the broker has of one partition: `event_log.feed`."""

    partition: int
    end: int

    @property
    def offset(self) -> int: ...

    def read(self, at_most: int) -> Sequence[Record] | None: ...


@dataclass(slots=True)
class Chunk:
    """What was found, and where the partitions stand after it, also behind a transaction's marker."""

    records: list[FetchedRecord] = field(default_factory=list)
    next_offsets: dict[int, int] = field(default_factory=dict)
    size: int = 0


class Prefetch:
    """The looks that were taken and not stored yet, of the partitions that are `owned` while each is taken.

    What lies in a partition that it `may_decode` not is decoded with its batch: it may be what crashes us.
    """

    def __init__(self, owned: Mapping[int, OwnedPartition], may_decode: Callable[[int], bool]) -> None:
        self._owned = owned
        self._may_decode = may_decode
        self._chunks: deque[Chunk] = deque()
        self._records = 0
        self._size = 0
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()

    async def receive(self, fetched: Sequence[FetchedPartition]) -> None:
        """Take an answer in. Returns when it was read to its end, and either much of it waits or a batch that was taken
        since is on its way to the database.

        Asking for more takes as long as the fold, and what comes in the meantime comes with the next answer. So the
        batch goes first, and the broker is asked while the database is busy.
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
        """Return when there is something that was read, or when this is woken."""
        if not self._chunks:
            self._arrived.clear()
            await self._arrived.wait()

    def read(self, at_most: int) -> Chunk:
        """All that was read by now, in order, ended by the look that brings it to `at_most` records."""
        taken = Chunk()
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
        """Whether there is something that was read and not taken yet."""
        return bool(self._chunks)

    def wake(self) -> None:
        """Have who waits for a look go on: there is something else to be done."""
        self._arrived.set()

    def drop(self, partition: int) -> None:
        """Drop what was read of a partition: somebody else owns it, or it is read anew."""
        for chunk in self._chunks:
            before = len(chunk.records)
            chunk.records = [one for one in chunk.records if one[0].partition != partition]
            chunk.next_offsets.pop(partition, None)
            self._records -= before - len(chunk.records)

    def _read(self, fetched: Sequence[FetchedPartition]) -> Iterator[Chunk]:
        """An answer as looks of bounded size. What is not ours by now is left out."""
        chunk = Chunk()
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
                chunk = Chunk()
        if chunk.next_offsets:
            yield chunk

    def _add(self, chunk: Chunk, records: Sequence[Record]) -> None:
        with deadline():
            chunk.records += [
                decode_record(one) if self._may_decode(one.partition) else (one, None) for one in records
            ]
        chunk.size += sum(len(one.value or b"") for one in records)

    async def _until_taken(self) -> None:
        self._taken.clear()
        await self._taken.wait()

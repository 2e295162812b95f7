"""A batch: records of our partitions folded and stored in one transaction, each record exactly once.

If the process dies before the commit, nothing of the batch happened: the next owner of the partitions reads from
`next_offset`, which is still the old one. If it dies after the commit, everything happened, and what the outbox holds
is published by the next owner. There is no third case, because rows, heads, outbox and `next_offset` are one commit: at
the end of a transaction, or of the one statement that a small batch is. If it dies between sending that and hearing of
it, it is one of the two, and the next owner's first statement says which.

If the database dies, what of it was not on disk did not happen either, the same commits as a whole and in their order:
the log is read again from the `next_offset` that is left, to the same rows. So a batch need not be on disk before it is
seen, as long as nobody does anything because of it that is not read from the log again. A batch that leaves something
in the outbox, or says of a call who runs it, is on disk when its commit returns, and so is every large one. Any other
is when it is announced, right after (`announcing`). A power cut that takes the same moments from Kafka too leaves a
conversation that ends before them, in both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection, errors

from frameledger.ids import ContextId
from frameledger.record import FIRST_GENERATION, LoggedFrame, Record
from frameledger_services.projector.cache import HeadCache
from frameledger_services.projector.deadline import deadline
from frameledger_services.projector.folding import (
    Decoded,
    Folding,
    Found,
    Refusal,
    UnfoldableError,
    decoded,
    frame_uuid,
)
from frameledger_services.projector.head import Head
from frameledger_services.projector.loading import load, park
from frameledger_services.projector.rows import OutboxRow, Rows, at
from frameledger_services.projector.writing import write, write_at_once
from frameledger_services.store import heads as head_statements
from frameledger_services.store import moving, together
from frameledger_services.store.projections import Progress

Connection = AsyncConnection[Any]

SMALL_RECORDS = 64
SMALL_BYTES = 256 * 1024
"""A batch of no more than both is written in one statement; of more rows, COPY and what else there is are quicker."""

REFUSED_FOR_ITS_DATA = ("22", "23", "54")
"""SQLSTATE classes that mean that these data will never be taken; all others pass."""

Step = Callable[[str], Awaitable[None]]

StoredIds = Mapping[tuple[str, UUID], bytes]
"""Frames that are stored already, by context and id, with their payloads."""


@dataclass(slots=True)
class Owned:
    """A partition that this projector owns, and how far it has read it."""

    partition: int
    epoch: int
    next_offset: int
    end_offset: int | None = None
    generation: int = FIRST_GENERATION


class FencedError(Exception):
    """Somebody else owns these partitions by now: their state is to be dropped, and nothing of the batch happened."""

    def __init__(self, partitions: set[int]) -> None:
        super().__init__(f"partitions {sorted(partitions)} belong to another projector")
        self.partitions = partitions


@dataclass(frozen=True, slots=True)
class Topics:
    """The names that a projector needs."""

    frames: str
    dead_letters: str
    effects: Mapping[str, str]
    partitions: int


class Batches:
    """Folds and stores batches over one connection, whose transactions are all its own.

    `passing` is told the name of each step before and after it: tests kill the process there.
    """

    def __init__(
        self, connection: Connection, topics: Topics, cache: HeadCache, passing: Step | None = None
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._cache = cache
        self._passing = passing or nobody_listens
        self.all_on_disk = False
        """Have every batch on disk when its commit returns: if the database itself dies of what lies in a log, what was
        stored last tells where."""

    async def store(
        self, found: Iterable[Found], owned: Mapping[int, Owned], positions: Mapping[int, int]
    ) -> list[OutboxRow]:
        """Store what lies between the partitions' `next_offset` and `positions`, and move them on.

        Returns what is to be published now. Raises `FencedError` if a partition was lost, and psycopg's errors when
        the database cannot be reached; then nothing was stored and the records have to be read again. A frame that
        can never be folded or stored parks its conversation and is no error.
        """
        with deadline():
            batch = [decoded(record) if logged is None else (record, logged) for record, logged in found]
        return await self._store_or_part(batch, owned, positions, None)

    async def park(self, record: Record, owned: Mapping[int, Owned], why: Exception) -> list[OutboxRow]:
        """Store a record without folding it, and with it all that its conversation gets from here on."""
        batch = [decoded(record)]
        return await self._park(batch, owned, _positions_after(batch, owned), None, record, why)

    async def _store_or_part(
        self,
        batch: Sequence[Decoded],
        owned: Mapping[int, Owned],
        positions: Mapping[int, int],
        stored_ids: StoredIds | None,
    ) -> list[OutboxRow]:
        """Store a batch whole if that can be done, else in parts. Without `stored_ids` the usual path is tried first,
        which asks no question; a unique violation leads to the slow one."""
        try:
            return await self._store(batch, owned, positions, stored_ids or {})
        except UnfoldableError as error:
            return await self._park(batch, owned, positions, stored_ids, error.record, error)
        except errors.Error as error:
            if isinstance(error, errors.UniqueViolation) and stored_ids is None:
                return await self._store_or_part(batch, owned, positions, await self._stored_ids(batch))
            if not _is_refused(error):
                raise
            return await self._halve(batch, owned, positions, stored_ids, error)

    async def _store(
        self,
        batch: Sequence[Decoded],
        owned: Mapping[int, Owned],
        positions: Mapping[int, int],
        stored_ids: StoredIds,
        *,
        parking: tuple[Record, str] | None = None,
    ) -> list[OutboxRow]:
        last = {record.partition: record for record, _ in batch}
        progress = [
            _progress(owned[partition], last.get(partition), end) for partition, end in positions.items()
        ]
        context_ids = {logged.context_id for _, logged in batch if isinstance(logged, LoggedFrame)}
        try:
            await self._passing("before load")
            # Before the lock: what is read is ours since we took the partitions over, like all that is in memory.
            heads = await self._heads(context_ids)
            await self._passing("after load")
            folding = self._folding(heads, stored_ids)
            if parking is not None:
                _park_head(folding, heads, *parking)
            with deadline():
                rows = folding.fold(batch)
            if _is_small(batch):
                await self._write_at_once(progress, rows, folding.touched.values())
            else:
                await self._write_in_turn(progress, rows, folding.touched.values())
        except BaseException:
            self._cache.drop(context_ids)
            raise
        await self._passing("after commit")
        for head in folding.touched.values():
            head.stored = True
        self._cache.put(heads.values())
        for one in progress:
            owned[one.partition].next_offset = one.next_offset
        return rows.outbox

    @cached_property
    def _cursor(self) -> together.Cursor:
        return together.cursor_of(self._connection)

    async def _write_at_once(self, progress: Sequence[Progress], rows: Rows, heads: Iterable[Head]) -> None:
        await self._passing("before lock")
        held = await write_at_once(
            self._cursor, self._topics.frames, progress, rows, heads, on_disk=self.all_on_disk
        )
        _check_held(progress, held)

    async def _write_in_turn(self, progress: Sequence[Progress], rows: Rows, heads: Iterable[Head]) -> None:
        async with self._connection.transaction():
            await self._passing("before lock")
            _check_held(progress, await moving.move(self._connection, self._topics.frames, progress))
            await self._passing("after lock")
            await write(self._connection, rows, heads)
            await self._passing("before commit")

    async def _stored_ids(self, batch: Sequence[Decoded]) -> StoredIds:
        """Which frames of the batch are stored already."""
        pairs = [
            (logged.context_id, frame_uuid(logged.frame_id))
            for _, logged in batch
            if isinstance(logged, LoggedFrame)
        ]
        async with self._connection.transaction():
            return await head_statements.recent_ids(self._connection, pairs)

    async def _halve(
        self,
        batch: Sequence[Decoded],
        owned: Mapping[int, Owned],
        positions: Mapping[int, int],
        stored_ids: StoredIds | None,
        error: errors.Error,
    ) -> list[OutboxRow]:
        """The database refused the batch for its data: halve it until the record is found, and park its
        conversation."""
        if not batch:
            raise error
        if len(batch) == 1:
            return await self._park(batch, owned, positions, stored_ids, batch[0][0], error)
        first, second = batch[: len(batch) // 2], batch[len(batch) // 2 :]
        outbox = await self._store_or_part(first, owned, _positions_after(first, owned), stored_ids)
        return outbox + await self._store_or_part(second, owned, positions, stored_ids)

    async def _park(
        self,
        batch: Sequence[Decoded],
        owned: Mapping[int, Owned],
        positions: Mapping[int, int],
        stored_ids: StoredIds | None,
        record: Record,
        error: Exception,
    ) -> list[OutboxRow]:
        """Store what lies before the record, then park its conversation at it, then go on."""
        index = next(index for index, (one, _) in enumerate(batch) if one is record)
        before, here, after = batch[:index], batch[index : index + 1], batch[index + 1 :]
        outbox: list[OutboxRow] = []
        if before:
            outbox += await self._store_or_part(before, owned, _positions_after(before, owned), stored_ids)
        position = _positions_after(here, owned)
        try:
            outbox += await self._store(here, owned, position, stored_ids or {}, parking=(record, str(error)))
        except errors.Error as refused:
            if not _is_refused(refused):
                raise
            outbox += await self._set_aside(record, owned, position, refused)
        return outbox + await self._store_or_part(after, owned, positions, stored_ids)

    async def _set_aside(
        self, record: Record, owned: Mapping[int, Owned], positions: Mapping[int, int], error: errors.Error
    ) -> list[OutboxRow]:
        """The database refuses even the bare row: the bytes are kept as a rejected frame, the conversation goes on."""
        problem = Refusal("refused", f"the database refuses it: {error.diag.message_primary or error}")
        return await self._store([(record, problem)], owned, positions, {})

    def _folding(self, heads: Mapping[str, Head], stored_ids: StoredIds) -> Folding:
        topics = self._topics
        return Folding(heads, topics.partitions, topics.effects.__getitem__, topics.dead_letters, stored_ids)

    async def _heads(self, context_ids: set[ContextId]) -> dict[str, Head]:
        """The heads of these conversations: from memory, all others in one query."""
        heads: dict[str, Head] = {}
        missing = []
        for context_id in context_ids:
            head = self._cache.get(context_id)
            if head is None:
                missing.append(context_id)
            else:
                heads[context_id] = head
        return heads | await load(self._connection, missing) if missing else heads


def _is_small(batch: Sequence[Decoded]) -> bool:
    return len(batch) <= SMALL_RECORDS and sum(len(one.value or b"") for one, _ in batch) <= SMALL_BYTES


def _check_held(progress: Sequence[Progress], held: set[int]) -> None:
    lost = {one.partition for one in progress} - held
    if lost:
        raise FencedError(lost)


async def nobody_listens(_: str) -> None:
    """Whom steps are told when no test asks for them."""


def _progress(owned: Owned, last: Record | None, next_offset: int) -> Progress:
    return Progress(
        partition=owned.partition,
        epoch=owned.epoch,
        expected=owned.next_offset,
        next_offset=next_offset,
        end_offset=owned.end_offset,
        last_offset=None if last is None else last.offset,
        last_hash=None if last is None else record_hash(last),
        last_logged_at=None if last is None or last.timestamp_ms is None else at(last.timestamp_ms),
        generation=owned.generation,
    )


def record_hash(record: Record) -> bytes:
    """What is compared when a partition is taken over: is the last record that was read still the one we know?"""
    parts = (record.key or b"", record.value or b"", str(record.timestamp_ms).encode())
    return sha256(b"".join([len(part).to_bytes(8, "big") + part for part in parts])).digest()


def _positions_after(batch: Sequence[Decoded], owned: Mapping[int, Owned]) -> dict[int, int]:
    """Where the partitions stand after these records."""
    return {record.partition: record.offset + 1 for record, _ in batch if record.partition in owned}


def _park_head(folding: Folding, heads: Mapping[str, Head], record: Record, error: str) -> None:
    key = (record.key or b"").decode("utf-8", "replace")
    park(heads[key], error)


def _is_refused(error: errors.Error) -> bool:
    return (error.sqlstate or "")[:2] in REFUSED_FOR_ITS_DATA

"""Poison records: counts crashes, and parks the conversation of a record that causes them.

A record may kill the process that decodes or folds it: by a bug in a library, by exhausting memory, or by a computation
that does not end (`watchdog`). Without a remedy its partition would stop for ever, while one projector after the other
crashes on it. But other crashes are ordinary, and no number of them may park a conversation. Hence:

**What counts as a crash.** Before an owner decodes the first records of a partition, it commits the start of an attempt
(`projections.attempt`). The commit that advances `next_offset` clears it, and so does an orderly shutdown. The next
owner counts a crash if the attempt is still there, and

- the owner was another process, whose session is gone. A session that we may not see (of another database user)
  counts as present.
- PostgreSQL has run without a restart since the owner took over. Otherwise the owner lost its session by that.
- the owner's session did not have to be terminated in the middle of a statement: it was waiting, not computing.

So an owner that was fenced, idle or frozen, or had nothing to read, is not counted, nor is the loss of a whole server
or machine. A crash while bytes are received is not counted either: even to become a dead letter, the record has to be
received.

**What is not a crash.** No Python exception is: `end_in_order` clears the attempts. A revoked right, a wrong broker and
a bug outside the fold are not caused by a record, and need an operator. A record whose values raise an error is found
by halving the batch (`unstorable_records`).

**What follows** depends on the crashes since `next_offset` last moved:

| crashes | the next owner |
| --- | --- |
| fewer than `ISOLATED_AFTER`, none on a single record | stores batches as usual |
| that many, or any on a single record | isolates: begins, decodes and stores one record at a time, nothing else |
| `PARKED_AFTER` on the first record alone | stores that record without folding it; its conversation is parked |
| more: even decoding it crashes | makes a dead letter of its bytes |

So a record is parked after `PARKED_AFTER` consecutive processes crashed while they worked on nothing else. Parking is
recorded as an attempt and counted like any other. Attempts need not be on disk, since they do not count after a restart
of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import psycopg

from frameledger.errors import RefusedError
from frameledger_services import logs
from frameledger_services.database_types import Connection
from frameledger_services.projector.batches import Batches
from frameledger_services.projector.decoded import FetchedRecord
from frameledger_services.projector.ownership import OwnedPartition, OwnedPartitions
from frameledger_services.store import projections
from frameledger_services.store.outbox import OutboxRow

ISOLATED_AFTER = 3
"""Number of crashes at one offset after which its records are isolated."""

PARKED_AFTER = 2
"""Number of crashes on a single record after which it is no longer folded."""

ORDERLY_SECONDS = 10.0
"""Maximum time for which `end_in_order` waits for the database."""

Treatment = Literal["batch", "isolate", "park", "dead letter"]

_log = logs.get_logger("projector")


@dataclass(frozen=True, slots=True)
class Crashes:
    """The number of crashes at the `next_offset` of a partition: all of them, and those on its first record alone."""

    all: int = 0
    alone: int = 0

    @property
    def treatment(self) -> Treatment:
        """How the partition's first record is stored."""
        if self.alone > PARKED_AFTER:
            return "dead letter"
        if self.alone == PARKED_AFTER:
            return "park"
        return "isolate" if self.alone or self.all >= ISOLATED_AFTER else "batch"


class PoisonError(RefusedError):
    """Projectors crashed one after the other on this record.

    Remedy: Its conversation is parked. Once the cause is fixed, fold it with `frameledger unpark`.
    """

    def __init__(self, crashes: Crashes) -> None:
        super().__init__(
            f"{crashes.all} projectors crashed at this frame, {crashes.alone} of them while they processed "
            "nothing else; it is not folded until the cause is fixed"
        )


class Isolation:
    """Stores batches, each after the start of the attempt is committed, so that a crash can be counted. Isolates
    records after crashes."""

    def __init__(self, connection: Connection, topic: str, batches: Batches) -> None:
        self._connection = connection
        self._topic = topic
        self._batches = batches
        self._begun_partitions: set[int] = set()
        self._isolated: dict[int, Crashes] = {}

    def take(self, owned: OwnedPartition, crashes: Crashes) -> None:
        """Register a partition that was taken over, with its crashes."""
        self.forget(owned.partition)
        if crashes.treatment != "batch":
            self._isolated[owned.partition] = crashes
            _log.warning(
                "projector.isolated",
                partition=owned.partition,
                offset=owned.next_offset,
                crashes=crashes.all,
                alone=crashes.alone,
            )

    def forget(self, partition: int) -> None:
        """Forget a partition that is no longer owned, or is about to be taken over again."""
        self._begun_partitions.discard(partition)
        self._isolated.pop(partition, None)

    def is_isolated(self, partition: int) -> bool:
        """Whether each of its records is stored as a batch of its own."""
        return partition in self._isolated

    def may_decode(self, partition: int) -> bool:
        """Whether its records may be decoded before their batch: an attempt is committed, and no partition is
        isolated."""
        return partition in self._begun_partitions and not self._isolated

    async def store(
        self,
        chunk: Sequence[FetchedRecord],
        owned: OwnedPartitions,
        next_offsets: Mapping[int, int],
    ) -> list[OutboxRow]:
        """Commit the start of an attempt, then call `Batches.store`. A record of an isolated partition has to be alone
        in its batch.

        Nothing is decoded before the attempt. A crash between the attempt and the commit of the batch is counted; the
        commit clears the attempt.
        """
        partition = chunk[0][0].partition if chunk else None
        if partition is not None and partition in self._isolated:
            return await self._store_alone(chunk, partition, owned, next_offsets)
        if not self._begun_partitions.issuperset(next_offsets):
            await self._begin("batch", next_offsets.keys() - self._begun_partitions, owned)
        return await self._batches.store(chunk, owned, next_offsets)

    def end(self, next_offsets: Mapping[int, int]) -> None:
        """Called when all fetched records of these partitions are stored: they are no longer isolated."""
        for partition in next_offsets:
            self._isolated.pop(partition, None)

    async def _store_alone(
        self,
        chunk: Sequence[FetchedRecord],
        partition: int,
        owned: OwnedPartitions,
        next_offsets: Mapping[int, int],
    ) -> list[OutboxRow]:
        # The crashes were on the first record alone.
        crashes, self._isolated[partition] = self._isolated[partition], Crashes()
        await self._begin("record", {partition}, owned)
        record = chunk[0][0]
        if crashes.treatment == "park":
            outbox = await self._batches.park(record, owned, PoisonError(crashes))
        elif crashes.treatment == "dead letter":
            outbox = await self._batches.dead_letter(record, owned, str(PoisonError(crashes)))
        else:
            return await self._batches.store(chunk, owned, next_offsets)
        return outbox + await self._batches.store([], owned, next_offsets)

    async def _begin(
        self, attempt: Literal["batch", "record"], partitions: set[int], owned: OwnedPartitions
    ) -> None:
        epochs = {one: owned[one].epoch for one in partitions}
        await projections.note_attempt(self._connection, self._topic, attempt, epochs)
        self._begun_partitions |= partitions


async def end_in_order(
    connection: Connection, topic: str, owner: str, reconnect: Callable[[], Awaitable[Connection]]
) -> None:
    """Clear the attempts of this owner, which did not crash, on a new connection if this one is broken. Errors are
    ignored: if the database is unreachable, the attempts do not count after its restart."""
    with suppress(psycopg.Error, OSError, TimeoutError):
        async with asyncio.timeout(ORDERLY_SECONDS):
            try:
                await projections.clear_attempts(connection, topic, owner)
            except psycopg.Error:
                async with await reconnect() as another:
                    await projections.clear_attempts(another, topic, owner)

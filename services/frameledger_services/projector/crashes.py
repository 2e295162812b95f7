"""Records that crash whoever folds them: how crashes are counted, and when a conversation is parked for them.

A record may end the process that decodes or folds it: a bug in a library, too much memory, a computation without end
(`watchdog`). Its partition would stand still for ever, while one projector after the other crashes over it. Crashes
that no record caused are ordinary, though, and no number of them may park a conversation. Hence:

**What a crash is.** An owner that takes a partition over has begun nothing there. Before it decodes the first records,
it notes in a commit of its own that it begins (`projections.attempt`); the commit that moves `next_offset` clears that,
and so does an owner that ends in order. Whoever takes the partition over next counts a crash if it finds the note, and

- the owner was another process, whose session is gone. One that we may not look at (of another user of the database)
  counts as there.
- PostgreSQL ran without a break since the owner took over. If it did not, the owner lost its session by that.
- nobody had to end the owner's session, in the middle of a statement: who waits for the database does not compute.

Not counted, by that: an owner that another one fenced, that had nothing to read or did not come to read it, that was
idle, or frozen; a server or a machine that was lost as a whole. What a process dies of while it receives bytes is not
counted either: whoever would set the record aside has to receive it too.

**What is no crash.** All that Python can still raise, whatever it is: `end_in_order` clears the notes. A right that was
revoked, the wrong broker, a state of a newer release, a bug outside the fold: none of that is a record's fault, and
waiting for a person is right. What the values of one record raise is found by halving the batch, in `batches`.

**What follows** from the crashes since `next_offset` last moved:

| crashes | the next owner |
| --- | --- |
| fewer than `ISOLATED_AFTER`, none over a single record | goes on as ever |
| so many, or any over a single record | isolates: begins, decodes and stores one record at a time, nothing else |
| `PARKED_AFTER` over the first record alone | stores that record without folding it; its conversation is parked |
| more: it crashes even who decodes it | sets its bytes aside, as a dead letter |

So a record is parked when `PARKED_AFTER` processes in turn ended while they had begun nothing else. Parking is begun,
and counted, like any attempt. The notes need not be on disk, since they do not count when the server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg import AsyncConnection

from frameledger.errors import RefusedError
from frameledger_services import logs
from frameledger_services.projector.batches import Batches, OwnedPartition
from frameledger_services.projector.decoded import FetchedRecord
from frameledger_services.store import projections
from frameledger_services.store.outbox import OutboxRow

Connection = AsyncConnection[Any]

ISOLATED_AFTER = 3
"""Crashes at one offset after which its records are isolated."""

PARKED_AFTER = 2
"""Crashes over a record alone after which it is not folded any more."""

ORDERLY_SECONDS = 10.0
"""What `end_in_order` waits for the database at most."""

Treatment = Literal["together", "alone", "park", "set aside"]

_log = logs.get_logger("projector")


@dataclass(frozen=True, slots=True)
class Crashes:
    """What is counted at the `next_offset` of a partition: all crashes, and those over its first record alone."""

    all: int = 0
    alone: int = 0

    @property
    def treatment(self) -> Treatment:
        """How the partition's first record is stored."""
        if self.alone > PARKED_AFTER:
            return "set aside"
        if self.alone == PARKED_AFTER:
            return "park"
        return "alone" if self.alone or self.all >= ISOLATED_AFTER else "together"


class PoisonError(RefusedError):
    """Projectors crashed one after the other over this record.

    Remedy: Its conversation is parked. Once the cause is mended, fold it with `frameledger unpark`.
    """

    def __init__(self, crashes: Crashes) -> None:
        super().__init__(
            f"{crashes.all} projectors died when this frame was next, {crashes.alone} of them with nothing else in "
            "hand; it is not folded until that is mended"
        )


class Isolation:
    """Stores batches and notes what was begun, so that a crash is counted; isolates where crashes were."""

    def __init__(self, connection: Connection, topic: str, batches: Batches) -> None:
        self._connection = connection
        self._topic = topic
        self._batches = batches
        self._begun: set[int] = set()
        self._isolated: dict[int, Crashes] = {}

    def take(self, owned: OwnedPartition, crashes: Crashes) -> None:
        """A partition was taken over: nothing is begun in it."""
        self.forget(owned.partition)
        if crashes.treatment != "together":
            self._isolated[owned.partition] = crashes
            _log.warning(
                "projector.isolated",
                partition=owned.partition,
                offset=owned.next_offset,
                crashes=crashes.all,
                alone=crashes.alone,
            )

    def forget(self, partition: int) -> None:
        """A partition is not ours any more, or is taken over anew."""
        self._begun.discard(partition)
        self._isolated.pop(partition, None)

    def is_isolated(self, partition: int) -> bool:
        """Whether each of its records is a batch by itself."""
        return partition in self._isolated

    def may_decode(self, partition: int) -> bool:
        """Whether its records may be decoded ahead of their batch: it has begun, and no record is tried alone."""
        return partition in self._begun and not self._isolated

    async def store(
        self,
        chunk: Sequence[FetchedRecord],
        owned: Mapping[int, OwnedPartition],
        positions: Mapping[int, int],
    ) -> list[OutboxRow]:
        """`Batches.store`, of records that are begun by this. One of an isolated partition is given alone.

        If we crash before the note nothing was decoded; between the note and the commit, it is counted; after the
        commit there is no note any more.
        """
        partition = chunk[0][0].partition if chunk else None
        if partition is not None and partition in self._isolated:
            return await self._store_alone(chunk, partition, owned, positions)
        if not self._begun.issuperset(positions):
            await self._begin("batch", positions.keys() - self._begun, owned)
        return await self._batches.store(chunk, owned, positions)

    def end(self, positions: Mapping[int, int]) -> None:
        """What was read of these partitions is stored: what comes is as innocent as anything."""
        for partition in positions:
            self._isolated.pop(partition, None)

    async def _store_alone(
        self,
        chunk: Sequence[FetchedRecord],
        partition: int,
        owned: Mapping[int, OwnedPartition],
        positions: Mapping[int, int],
    ) -> list[OutboxRow]:
        # Only the first one was there when they crashed.
        crashes, self._isolated[partition] = self._isolated[partition], Crashes()
        await self._begin("record", {partition}, owned)
        record = chunk[0][0]
        if crashes.treatment == "park":
            outbox = await self._batches.park(record, owned, PoisonError(crashes))
        elif crashes.treatment == "set aside":
            outbox = await self._batches.set_aside(record, owned, str(PoisonError(crashes)))
        else:
            return await self._batches.store(chunk, owned, positions)
        return outbox + await self._batches.store([], owned, positions)

    async def _begin(
        self, attempt: Literal["batch", "record"], partitions: set[int], owned: Mapping[int, OwnedPartition]
    ) -> None:
        epochs = {one: owned[one].epoch for one in partitions}
        await projections.note_attempt(self._connection, self._topic, attempt, epochs)
        self._begun |= partitions


async def end_in_order(
    connection: Connection, topic: str, owner: str, reconnect: Callable[[], Awaitable[Connection]]
) -> None:
    """Note that this owner ends, or begins anew, and did not crash. On another connection if this one is of no use;
    if the database is away, that shows when it comes back."""
    with suppress(psycopg.Error, OSError, TimeoutError):
        async with asyncio.timeout(ORDERLY_SECONDS):
            try:
                await projections.clear_attempts(connection, topic, owner)
            except psycopg.Error:
                async with await reconnect() as another:
                    await projections.clear_attempts(another, topic, owner)

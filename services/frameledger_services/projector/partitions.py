"""Taking a partition over: raise its epoch, look whether its log is still the one we know, go on where it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from psycopg import AsyncConnection, errors

from frameledger.record import Record
from frameledger_services.projector.batches import Owned, record_hash
from frameledger_services.store import projections
from frameledger_services.store.projections import Assignment

Connection = AsyncConnection[Any]

LOCK_TIMEOUT_MS = 2_000
"""How long a new owner waits for the old one's transaction before it ends the old one's session."""


class Log(Protocol):
    """What of the log has to be looked at."""

    async def offsets(self, partition: int) -> tuple[int, int]:
        """The first offset that a partition still has, and the one that its next record will get."""
        ...

    async def record_at(self, partition: int, offset: int) -> Record | None:
        """The record at an offset; None if there is none, as behind a transaction's marker."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition in our hands. `lives` counts the owners since it last moved, us included: many who read at one
    offset and did not come further died of it."""

    owned: Owned
    lives: int


class LogChangedError(Exception):
    """The log is not the one that was projected: nothing is skipped, an operator has to decide."""


async def take_over(connection: Connection, log: Log, topic: str, partition: int, owner: str) -> Taken:
    """Own a partition: whoever owned it before is fenced from here on.

    Raises `LogChangedError` if Kafka no longer has the next record, or another one before it.
    """
    assigned = await _assigned(connection, topic, partition, owner)
    end = await _checked(log, topic, assigned)
    if end == assigned.next_offset:
        # There is nothing to die of here.
        await projections.rest(connection, topic, partition, assigned.epoch)
        return Taken(Owned(partition, assigned.epoch, assigned.next_offset, end), 0)
    return Taken(Owned(partition, assigned.epoch, assigned.next_offset, end), assigned.idle_assignments)


async def _assigned(connection: Connection, topic: str, partition: int, owner: str) -> Assignment:
    for _ in range(_ATTEMPTS):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                return await projections.assign(connection, topic, partition, owner)
        except errors.LockNotAvailable:
            # Whoever holds the row is frozen in the middle of a transaction, or as good as that.
            await projections.end_owner(connection, topic, partition)
    raise LogChangedError(
        f"{topic}/{partition}: its row in `projections` stays locked by a session that could not be ended; "
        "look for it in pg_stat_activity and end it with pg_terminate_backend"
    )


_ATTEMPTS = 5


_REMEDY = (
    "Nothing is skipped: bring the broker back that has these records, or fill an empty database from the log that "
    "there is."
)


async def _checked(log: Log, topic: str, assigned: Assignment) -> int:
    """The partition's end, if the log is still the one whose records were stored."""
    where = f"{topic}/{assigned.partition}"
    first, end = await log.offsets(assigned.partition)
    if assigned.next_offset > end:
        raise LogChangedError(
            f"{where} ends at {end}, and {assigned.next_offset} is next: Kafka lost records that are stored here, "
            f"or the topic was made anew. {_REMEDY}"
        )
    if assigned.next_offset < first:
        raise LogChangedError(
            f"{where} begins at {first}, and {assigned.next_offset} is next: the records between have expired and "
            f"were never stored here. {_REMEDY}"
        )
    if assigned.last_offset is not None and assigned.last_offset >= first:
        record = await log.record_at(assigned.partition, assigned.last_offset)
        if record is None or record_hash(record) != assigned.last_hash:
            raise LogChangedError(
                f"{where} has another record at {assigned.last_offset} than the one that is stored here: it is not "
                f"the log that this database was filled from. {_REMEDY}"
            )
    return end

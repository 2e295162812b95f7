"""Takes a partition over: raises its epoch, checks its log, and continues at its next offset."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import errors

from frameledger_services.database_types import Connection
from frameledger_services.projector.crashes import Crashes
from frameledger_services.projector.log_check import (
    REMEDY,
    LogChangedError,
    LogReader,
    describe_difference,
    log_state,
)
from frameledger_services.projector.ownership import OwnedPartition
from frameledger_services.store import held_effects, projections, topics
from frameledger_services.store.projections import HELD_UNTIL_KNOWN, Assignment, StoredPosition

LOCK_TIMEOUT_MS = 2_000
"""How long a new owner waits for the transaction of the old owner before it terminates the old owner's session."""

LOCK_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class TakenOver:
    """An owned partition, and the crashes at its next offset."""

    owned: OwnedPartition
    crashes: Crashes


async def assign(connection: Connection, topic: str, partition: int, owner: str) -> Assignment:
    """Own a partition; its former owner is fenced from now on. Raises `TopicChangedError` if a projector of another
    topic came first, and `LogChangedError` if the row or lock that it waits for stays locked."""
    ended = False
    for _ in range(LOCK_ATTEMPTS):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                await topics.reserve(connection, topic)
                return await projections.assign(connection, topic, partition, owner, ended=ended)
        except errors.LockNotAvailable:
            # Either the owner is frozen in the middle of a transaction, or nothing was read yet and another process
            # froze while it was taking the partition over: then there is no owner, or one that loses nothing.
            ended |= await projections.terminate_owner(connection, topic, partition)
    raise LogChangedError(
        f"{topic}/{partition}: its row in `projections`, or an advisory lock, stays locked by a session that could not "
        "be ended; look for it in pg_stat_activity and end it with pg_terminate_backend"
    )


async def check_log(connection: Connection, log: LogReader, topic: str, assigned: Assignment) -> TakenOver:
    """Check the log of a partition that was assigned, and hold its effects up to the log's end.

    Raises `LogChangedError` if the log no longer has the next record, or has another one before it.
    """
    partition = assigned.partition
    end = await _checked(log, topic, assigned)
    owned = OwnedPartition(partition, assigned.epoch, assigned.next_offset, end, assigned.generation)
    if end > assigned.next_offset or assigned.effects_held_until != HELD_UNTIL_KNOWN:
        owned.held_until = end
    # Before any record is read. If the process dies before this, nothing was folded, and the partition stays held for
    # the next owner.
    await held_effects.hold(connection, topic, partition, assigned.epoch, owned.held_until)
    if end == assigned.next_offset:
        await projections.reset_crashes(connection, topic, partition, assigned.epoch)
        return TakenOver(owned, Crashes())
    return TakenOver(owned, Crashes(assigned.crashes, assigned.crashes_alone))


async def _checked(log: LogReader, topic: str, assigned: Assignment) -> int:
    """Returns the partition's end offset. Raises `LogChangedError` if its log is not the one that was stored."""
    stored = StoredPosition(
        assigned.partition, assigned.next_offset, assigned.last_offset, assigned.last_hash, None
    )
    state = await log_state(log, stored)
    difference = describe_difference(topic, stored, state)
    if difference is not None:
        raise LogChangedError(f"{difference} {REMEDY}")
    return state.end

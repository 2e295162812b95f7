"""How far each partition was read, and by whom: the rows that fence one projector off from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from frameledger.record import FIRST_GENERATION

Connection = AsyncConnection[Any]

PROJECTION = "contexts"
"""The projection that the tables of this database are."""

CHANNEL = "frameledger_projected"
"""What is notified once after each batch, when it can be read. `announcement` says how far."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition in its new owner's hands, and where it goes on."""

    partition: int
    epoch: int
    next_offset: int
    last_offset: int | None
    last_hash: bytes | None
    idle_assignments: int
    """How many owners it had since `next_offset` last moved, this one included: a projector that dies at one offset
    again and again shows here. An owner whose session was still there when the next one came did not die."""

    generation: int
    """The topic's, in which these offsets count."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a batch moves in a partition's row; `epoch` and `expected` are what the row has to say before."""

    partition: int
    epoch: int
    expected: int
    next_offset: int
    end_offset: int | None
    last_offset: int | None = None
    last_hash: bytes | None = None
    last_logged_at: datetime | None = None
    generation: int = FIRST_GENERATION


async def announce(connection: Connection, topic: str, offsets: Mapping[int, int]) -> None:
    """Tell who listens how far partitions were read. It says nothing if that is too much to say.

    Whoever is told has still to look, since everybody may notify; but there is no need to look before. What was
    committed before this began is on disk by then.
    """
    told = " ".join([topic, *(f"{partition}:{offset}" for partition, offset in offsets.items())])
    if not offsets or len(told) > _LONGEST_TOLD:
        told = ""
    # Nobody waits for the disk when a transaction does nothing but notify: hence the message, which nobody reads.
    await connection.execute(
        "SELECT pg_logical_emit_message(true, 'frameledger', ''), pg_notify(%s, %s)", (CHANNEL, told)
    )


_LONGEST_TOLD = 7_900


def announced(told: str) -> tuple[str, dict[int, int]]:
    """What `announce` told: the topic, and the offsets by partition. Nothing of what is none."""
    topic, *offsets = told.split(" ")
    pairs = [one.split(":") for one in offsets]
    try:
        return topic, {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        return topic, {}


async def assign(connection: Connection, topic: str, partition: int, owner: str) -> Assignment:
    """Take a partition over in the topic's newest generation: one statement, which raises its epoch and so fences
    whoever owned it.

    Waits for the owner's transaction, as long as the session's `lock_timeout` allows (`LockNotAvailable`). Called
    twice it raises the epoch twice.
    """
    row = None
    while row is None:
        # None: while we waited for the row, `recover` sealed it, and now there is a newer generation.
        cursor = await connection.execute(_ASSIGN, (PROJECTION, topic, topic, partition, owner))
        row = await cursor.fetchone()
    return Assignment(partition, *row)


_ASSIGN = """
    INSERT INTO projections AS p
        (projection, topic, generation, partition, epoch, owner, owner_pid, owner_started_at, idle_assignments)
    SELECT
        %s, %s, coalesce((SELECT max(generation) FROM topics WHERE topic = %s), 1), %s, 1, %s,
        session.pid, session.backend_start, 1
    FROM pg_stat_get_activity(pg_backend_pid()) AS session
    ON CONFLICT (projection, topic, generation, partition) DO UPDATE SET
        epoch = p.epoch + 1,
        owner = excluded.owner,
        owner_pid = excluded.owner_pid,
        owner_started_at = excluded.owner_started_at,
        idle_assignments = p.idle_assignments + CASE WHEN EXISTS (
            SELECT FROM pg_stat_get_activity(p.owner_pid) AS before
            WHERE before.backend_start = p.owner_started_at
        ) THEN 0 ELSE 1 END,
        updated_at = clock_timestamp()
    WHERE p.sealed_at IS NULL
    RETURNING epoch, next_offset, last_offset, last_hash, idle_assignments, generation
"""


async def rest(connection: Connection, topic: str, partition: int, epoch: int) -> None:
    """Whoever owns the partition next does not come after one who died of a record: there is none, or we live."""
    await connection.execute(
        """
        UPDATE projections SET idle_assignments = 0
        WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND partition = %s AND epoch = %s
        """,
        (PROJECTION, topic, partition, epoch),
    )


async def end_owner(connection: Connection, topic: str, partition: int) -> bool:
    """End the session that owns a partition and does not let go of it; whether there was one to be ended.

    No timeout of PostgreSQL frees a session whose client froze in the middle of a COPY. Its pid may have been given
    to another session since: it is ended only if it also began when the owner's did.
    """
    cursor = await connection.execute(
        """
        SELECT pg_terminate_backend(session.pid)
        FROM projections AS p
        JOIN pg_stat_get_activity(NULL) AS session
            ON session.pid = p.owner_pid AND session.backend_start = p.owner_started_at
        WHERE p.projection = %s AND p.topic = %s AND p.sealed_at IS NULL AND p.partition = %s
            AND session.pid <> pg_backend_pid()
        """,
        (PROJECTION, topic, partition),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])

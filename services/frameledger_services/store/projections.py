"""The stored position of each partition, and its owner: the rows by which projectors fence each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from psycopg.rows import class_row

from frameledger.record import FIRST_GENERATION
from frameledger.values import value
from frameledger_services.database_types import Connection
from frameledger_services.store.server import THIS_DATABASE

PROJECTION = "contexts"
"""The name of the projection in the tables of this database."""

HELD_UNTIL_KNOWN = -1
"""In `effects_held_until`: the new owner has not yet read the end of the log; the former owner had reached the end."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """A partition of a new owner, and the offset from which it continues."""

    partition: int
    epoch: int
    next_offset: int
    last_offset: int | None
    last_hash: bytes | None
    crashes: int
    """Number of owners that crashed at `next_offset`; see `projector.crashes`."""

    crashes_alone: int
    """Number of those that had begun the next record alone."""

    generation: int
    """The topic's generation, to which the offsets belong."""

    effects_held_until: int
    """The offset that a former owner did not reach, or `HELD_UNTIL_KNOWN` if it held nothing; see `held_effects`."""


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """The stored position of a partition."""

    partition: int
    next_offset: int
    last_offset: int | None
    last_hash: bytes | None
    last_logged_at: datetime | None


@value
class Progress:
    """The new checkpoint of a partition. Its row must have `epoch` and `expected` (the old `next_offset`)."""

    partition: int
    epoch: int
    expected: int
    next_offset: int
    end_offset: int | None
    last_offset: int | None = None
    last_hash: bytes | None = None
    last_logged_at: datetime | None = None
    generation: int = FIRST_GENERATION


async def assign(
    connection: Connection, topic: str, partition: int, owner: str, *, ended: bool = False
) -> Assignment:
    """Take a partition over in the topic's newest generation, with one statement: it raises the epoch, which fences the
    former owner, and counts a crash if that owner crashed (`projector.crashes`).

    Its effects are held back from here on, until the owner releases them (`held_effects`). `owner` is a unique name of
    the process. `ended` means that the former owner did not crash: its session was in the middle of a statement, and
    was terminated for that. Waits for the owner's transaction, as long as the session's `lock_timeout` allows
    (`LockNotAvailable`). Called twice, it raises the epoch twice.
    """
    row: Assignment | None = None
    while row is None:
        # None: `recover` sealed the row while this waited for it, and there is a newer generation now.
        async with connection.cursor(row_factory=class_row(Assignment)) as cursor:
            await cursor.execute(_ASSIGN, (PROJECTION, topic, topic, partition, owner, ended))
            row = await cursor.fetchone()
    return row


# Each crash of the server resets the statistics of the background writer, even if its postmaster survived. An
# administrator can reset them, too; then one crash of an owner is not counted.
_SERVER_STARTED_AT = "(SELECT greatest(pg_postmaster_start_time(), stats_reset) FROM pg_stat_bgwriter)"

_ASSIGN = f"""
    INSERT INTO projections AS p
        (projection, topic, generation, partition, epoch, owner, owner_pid, owner_started_at, server_started_at)
    SELECT
        %s, %s, coalesce((SELECT max(generation) FROM topics WHERE topic = %s), 1), %s, 1, %s,
        session.pid, session.backend_start, {_SERVER_STARTED_AT}
    FROM pg_stat_get_activity(pg_backend_pid()) AS session
    ON CONFLICT (projection, topic, generation, partition) DO UPDATE SET
        epoch = p.epoch + 1,
        owner = excluded.owner,
        owner_pid = excluded.owner_pid,
        owner_started_at = excluded.owner_started_at,
        server_started_at = excluded.server_started_at,
        attempt = NULL,
        (crashes, crashes_alone) = (
            SELECT
                p.crashes + CASE WHEN crashed THEN 1 ELSE 0 END,
                p.crashes_alone + CASE WHEN crashed AND p.attempt = 'record' THEN 1 ELSE 0 END
            FROM (
                SELECT
                    p.attempt IS NOT NULL
                    AND p.owner <> excluded.owner
                    AND p.server_started_at = excluded.server_started_at
                    AND NOT %s
                    AND NOT EXISTS (
                        SELECT FROM pg_stat_get_activity(p.owner_pid) AS before
                        -- Users without the permission see only the pids of other users' sessions.
                        WHERE coalesce(before.backend_start = p.owner_started_at, true)
                    ) AS crashed
            ) AS looked
        ),
        effects_held_until = coalesce(p.effects_held_until, {HELD_UNTIL_KNOWN}),
        updated_at = clock_timestamp()
    WHERE p.sealed_at IS NULL
    RETURNING
        partition, epoch, next_offset, last_offset, last_hash, crashes, crashes_alone, generation,
        coalesce(effects_held_until, {HELD_UNTIL_KNOWN}) AS effects_held_until
"""


async def duplicate_instance(
    connection: Connection, topic: str, name: str, owner: str
) -> tuple[str, int] | None:
    """Returns an owner of a partition that has this name, is not `owner`, and has a live session, with the pid of that
    session; None if there is none. The start of another user's session is not visible."""
    cursor = await connection.execute(
        f"""
        SELECT p.owner, p.owner_pid FROM projections AS p
        JOIN LATERAL pg_stat_get_activity(p.owner_pid) AS session
            ON coalesce(session.backend_start = p.owner_started_at, true) AND session.datid = {THIS_DATABASE}
        WHERE p.projection = %s AND p.topic = %s AND p.sealed_at IS NULL
            AND split_part(p.owner, ' ', 1) = %s AND p.owner <> %s
        LIMIT 1
        """,
        (PROJECTION, topic, name, owner),
    )
    return await cursor.fetchone()


async def note_attempt(
    connection: Connection, topic: str, attempt: Literal["batch", "record"], epochs: Mapping[int, int]
) -> None:
    """Record, in a commit of its own, that the owner begins records of these partitions, given with their epochs.

    Partitions of another owner are not changed. The row need not be on disk: if the database crashes too, no record was
    the cause.
    """
    await connection.execute(
        """
        UPDATE projections AS p SET attempt = %s
        FROM unnest(%s::int[], %s::bigint[]) AS given (partition, epoch)
        WHERE p.projection = %s AND p.topic = %s AND p.sealed_at IS NULL
            AND p.partition = given.partition AND p.epoch = given.epoch
            AND set_config('synchronous_commit', 'off', true) = 'off'
        """,
        (attempt, list(epochs), list(epochs.values()), PROJECTION, topic),
    )


async def clear_attempts(connection: Connection, topic: str, owner: str) -> None:
    """Record that this owner shuts down in order, whatever it has begun. Crashes that are already counted remain."""
    await connection.execute(
        """
        UPDATE projections SET attempt = NULL
        WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND owner = %s AND attempt IS NOT NULL
        """,
        (PROJECTION, topic, owner),
    )


async def reset_crashes(connection: Connection, topic: str, partition: int, epoch: int) -> None:
    """Reset the crashes of a partition: there is no record at `next_offset` that could have caused them."""
    await connection.execute(
        """
        UPDATE projections SET crashes = 0, crashes_alone = 0
        WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND partition = %s AND epoch = %s
        """,
        (PROJECTION, topic, partition, epoch),
    )


async def terminate_owner(connection: Connection, topic: str, partition: int) -> bool:
    """Terminate the session that owns a partition. Returns whether there was one.

    No timeout of PostgreSQL ends a session whose client froze in the middle of a COPY. The pid may belong to another
    session by now, so the session's start has to match too.
    """
    cursor = await connection.execute(
        f"""
        SELECT pg_terminate_backend(session.pid)
        FROM projections AS p
        JOIN pg_stat_get_activity(NULL) AS session
            ON session.pid = p.owner_pid AND session.backend_start = p.owner_started_at
                AND session.datid = {THIS_DATABASE}
        WHERE p.projection = %s AND p.topic = %s AND p.sealed_at IS NULL AND p.partition = %s
            AND session.pid <> pg_backend_pid()
        """,
        (PROJECTION, topic, partition),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def next_offsets(connection: Connection, topic: str) -> dict[int, int]:
    """Returns the next offset of each partition that was ever projected, except those whose effects are held: the
    projector has not yet requested their open work."""
    cursor = await connection.execute(
        """
        SELECT partition, next_offset FROM projections
        WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND effects_held_until IS NULL
        """,
        (PROJECTION, topic),
    )
    return dict(await cursor.fetchall())


async def stored_positions(connection: Connection, topic: str) -> list[StoredPosition]:
    """Returns the positions of a topic's partitions in its newest generation, without those that were never read."""
    async with connection.cursor(row_factory=class_row(StoredPosition)) as cursor:
        await cursor.execute(
            """
            SELECT partition, next_offset, last_offset, last_hash, last_logged_at
            FROM projections
            WHERE projection = %s AND topic = %s AND sealed_at IS NULL
            ORDER BY partition
            """,
            (PROJECTION, topic),
        )
        return await cursor.fetchall()

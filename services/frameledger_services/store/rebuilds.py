"""The table `rebuilds`: the progress of a rebuild of many conversations. Each function runs one statement; none
commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from psycopg import errors
from psycopg.rows import class_row

from frameledger_services.database_types import Connection

HOLD_TIMEOUT = "3s"

Selection = Literal["all", "unknown"]
Source = Literal["frames", "kafka"]


@dataclass(frozen=True, slots=True)
class RebuildKind:
    """The kind of a rebuild. An interrupted rebuild is continued by one of the same kind."""

    selection: Selection
    source: Source
    fold_version: int
    applied: bool


@dataclass(slots=True)
class RebuildProgress:
    """A row of `rebuilds`."""

    number: int
    reached: str | None = None
    read_count: int = 0
    differ_count: int = 0
    failed_count: int = 0
    rebuilt_count: int = 0


_PROGRESS = "SELECT number, reached, read_count, differ_count, failed_count, rebuilt_count FROM rebuilds"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A conversation to be folded again. `is_mixed` if several folds made its rows."""

    context_id: str
    version: int
    fold_version: int
    is_mixed: bool


async def interrupted(connection: Connection, kind: RebuildKind) -> RebuildProgress | None:
    """Returns the newest rebuild of this kind that has not ended."""
    async with connection.cursor(row_factory=class_row(RebuildProgress)) as cursor:
        await cursor.execute(
            f"""
            {_PROGRESS}
            WHERE selection = %s AND source = %s AND fold_version = %s AND applied = %s AND ended_at IS NULL
            ORDER BY number DESC
            LIMIT 1
            """,
            (kind.selection, kind.source, kind.fold_version, kind.applied),
        )
        return await cursor.fetchone()


async def unended(connection: Connection, number: int) -> RebuildProgress | None:
    """Returns the progress of a rebuild; None if it has ended."""
    async with connection.cursor(row_factory=class_row(RebuildProgress)) as cursor:
        await cursor.execute(
            f"""
            {_PROGRESS}
            WHERE number = %s AND ended_at IS NULL
            """,
            (number,),
        )
        return await cursor.fetchone()


async def begin(connection: Connection, kind: RebuildKind) -> RebuildProgress:
    """Begin a rebuild. Called twice it begins two."""
    async with connection.cursor(row_factory=class_row(RebuildProgress)) as cursor:
        await cursor.execute(
            """
            INSERT INTO rebuilds (selection, source, fold_version, applied) VALUES (%s, %s, %s, %s)
            RETURNING number
            """,
            (kind.selection, kind.source, kind.fold_version, kind.applied),
        )
        progress = await cursor.fetchone()
    assert progress is not None
    return progress


async def hold(connection: Connection, number: int) -> bool:
    """Lock a rebuild until the session ends. Returns False if another session has locked it. Waits for the session of a
    process that has just died."""
    try:
        await connection.execute(
            "SELECT set_config('lock_timeout', %s, true), pg_advisory_lock(716023650, %s::int4)",
            (HOLD_TIMEOUT, number),
        )
    except errors.LockNotAvailable:
        return False
    return True


async def save(connection: Connection, progress: RebuildProgress, *, ended: bool) -> None:
    """Store the progress of a rebuild, and whether it has ended."""
    await connection.execute(
        """
        UPDATE rebuilds SET
            reached = %s, read_count = %s, differ_count = %s, failed_count = %s, rebuilt_count = %s,
            updated_at = clock_timestamp(), ended_at = CASE WHEN %s THEN clock_timestamp() END
        WHERE number = %s
        """,
        (
            progress.reached,
            progress.read_count,
            progress.differ_count,
            progress.failed_count,
            progress.rebuilt_count,
            ended,
            progress.number,
        ),
    )


async def count(connection: Connection, selection: Selection, after: str | None) -> int:
    """Returns the number of conversations of a selection after an id."""
    cursor = await connection.execute(_COUNT[selection], (after or "",))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def candidates(
    connection: Connection, selection: Selection, after: str | None, limit: int
) -> list[Candidate]:
    """Returns the next conversations of a selection after an id, in the order of their ids."""
    async with connection.cursor(row_factory=class_row(Candidate)) as cursor:
        await cursor.execute(_CANDIDATES[selection], (after or "", limit))
        return await cursor.fetchall()


async def named(connection: Connection, context_ids: Sequence[str]) -> list[Candidate]:
    """Returns those of these conversations that exist."""
    async with connection.cursor(row_factory=class_row(Candidate)) as cursor:
        await cursor.execute(
            f"{_HEADS} WHERE context_id = ANY (%s) ORDER BY context_id", (list(context_ids),)
        )
        return await cursor.fetchall()


_HEADS = "SELECT context_id, version, fold_version, folded_by IS NOT NULL AS is_mixed FROM contexts"

# An id has at least one byte, so every one comes after the empty text.
_COUNT = {
    "all": "SELECT count(*) FROM contexts WHERE context_id > %s",
    "unknown": "SELECT count(DISTINCT context_id) FROM frames WHERE outcome = 'unknown' AND context_id > %s",
}
_CANDIDATES = {
    "all": f"{_HEADS} WHERE context_id > %s ORDER BY context_id LIMIT %s",
    "unknown": f"""
        {_HEADS}
        WHERE context_id IN (SELECT context_id FROM frames WHERE outcome = 'unknown' AND context_id > %s)
        ORDER BY context_id
        LIMIT %s
    """,
}

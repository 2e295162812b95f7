"""What an export reads, and what an import checks first.

All functions read in the caller's transaction, which has to be REPEATABLE READ so that a conversation is read from one
snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import class_row
from sqlalchemy import Table

from frameledger_services.database_types import Connection
from frameledger_services.store import rows_by_version, stored_rows, tables
from frameledger_services.store.binary_copy import type_name
from frameledger_services.store.frame_pages import FramePages

NO_LOG_GENERATION = 0
NO_LOG_PARTITION = -1
"""The place of an imported frame, with its version as offset: it is on no log of this database. Generations of topics
begin at 1, so `recover` neither looks for such a frame nor misses it, and no projection has such a partition, so the
timekeeper ignores it."""

IDS_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Exported:
    """The head of a conversation to be exported."""

    context_id: str
    version: int
    chain: bytes
    first: int
    """The version of its first frame: later than 1 if it continues after an erasure."""

    @property
    def frame_count(self) -> int:
        return self.version - self.first + 1


class ExportedFrame(NamedTuple):
    """A row of `frames`."""

    version: int
    frame_id: UUID
    type: str
    source: str | None
    logged_at: datetime
    produced_at: datetime | None
    causation_id: UUID | None
    trace_id: str | None
    run_id: str | None
    tool_call_id: str | None
    generation: int
    partition: int
    offset: int
    chain: bytes
    outcome: str
    reason: str | None
    payload: bytes
    """The value of the record, byte for byte."""


@dataclass(frozen=True, slots=True)
class StoredPresence:
    """What a database has for the id of a conversation that is to be imported."""

    context_id: str
    version: int | None
    """The version of the conversation; None if there is none."""

    chain: bytes | None
    """The link of its chain at the requested version; None if it has fewer versions."""

    erased_at: datetime | None
    """When a conversation of that id was last erased; None if none ever was."""


async def conversations(connection: Connection, since: datetime | None) -> AsyncGenerator[str, None]:
    """Yields the ids of all conversations, or of those with a frame at `since` or later, in order."""
    after = ""
    while True:
        cursor = await connection.execute(
            """
            SELECT context_id FROM contexts
            WHERE context_id > %s AND (%s::timestamptz IS NULL OR last_at >= %s)
            ORDER BY context_id LIMIT %s
            """,
            (after, since, since, IDS_AT_ONCE),
        )
        page = [context_id for (context_id,) in await cursor.fetchall()]
        for context_id in page:
            yield context_id
        if len(page) < IDS_AT_ONCE:
            return
        after = page[-1]


async def count(connection: Connection, since: datetime | None) -> int:
    """Returns the number of ids that `conversations` yields."""
    cursor = await connection.execute(
        "SELECT count(*) FROM contexts WHERE %s::timestamptz IS NULL OR last_at >= %s", (since, since)
    )
    [(number,)] = await cursor.fetchall()
    return int(number)


async def exported(connection: Connection, context_id: str) -> Exported | None:
    """Returns the head of a conversation; None if it does not exist."""
    async with connection.cursor(row_factory=class_row(Exported)) as cursor:
        await cursor.execute(
            """
            SELECT
                context_id, version, chain,
                (SELECT min(frames.version) FROM frames WHERE frames.context_id = contexts.context_id) AS first
            FROM contexts
            WHERE context_id = %s
            """,
            (context_id,),
        )
        return await cursor.fetchone()


def exported_frames(connection: Connection, context_id: str) -> AsyncGenerator[list[ExportedFrame], None]:
    """Yields the frames of a conversation in order, in pages of bounded size."""
    return _FRAMES.pages(connection, context_id)


_FRAMES = FramePages(ExportedFrame._make, ExportedFrame._fields)


async def presence(connection: Connection, versions: Sequence[tuple[str, int]]) -> list[StoredPresence]:
    """Returns what the database has for these conversations, each with a version, in order."""
    async with connection.cursor(row_factory=class_row(StoredPresence)) as cursor:
        await cursor.execute(
            """
            SELECT
                asked.context_id, contexts.version,
                (
                    SELECT frames.chain FROM frames
                    WHERE frames.context_id = asked.context_id AND frames.version = asked.version
                ) AS chain,
                (SELECT max(erased_at) FROM erasures WHERE erasures.context_id = asked.context_id) AS erased_at
            FROM unnest(%s::text[], %s::int8[]) WITH ORDINALITY AS asked (context_id, version, number)
            LEFT JOIN contexts ON contexts.context_id = asked.context_id
            ORDER BY asked.number
            """,
            ([context_id for context_id, _ in versions], [version for _, version in versions]),
        )
        return await cursor.fetchall()


async def stored_ids(
    connection: Connection, context_id: str, frame_ids: Collection[UUID], table: Table = tables.frames
) -> set[UUID]:
    """Returns those of these ids that frames of the conversation have, in `frames` or where they are staged."""
    cursor = await connection.execute(
        f'SELECT frame_id FROM "{table.name}" WHERE context_id = %s AND frame_id = ANY (%s)',
        (context_id, list(frame_ids)),
    )
    return {frame_id for (frame_id,) in await cursor.fetchall()}


async def table_rows(
    connection: Connection, table: Table, context_id: str
) -> AsyncGenerator[list[tuple[Any, ...]], None]:
    """Yields the rows of a conversation in one of the tables that have a `context_id`, ordered by their key, with the
    columns of `stored_rows.names`, a few at a time. JSON and UUIDs are text."""
    columns = ", ".join(
        f'"{name}"::text' if type_name(table, name) in ("json", "uuid") else f'"{name}"'
        for name in stored_rows.names(table)
    )
    key = ", ".join(f'"{column.name}"' for column in table.primary_key.columns)
    async with connection.cursor(name=f"export_{table.name}") as cursor:
        await cursor.execute(
            f"SELECT {columns} FROM {table.name} WHERE context_id = %s ORDER BY {key}", (context_id,)
        )
        while rows := await cursor.fetchmany(rows_by_version.FETCH_ROWS):
            yield rows

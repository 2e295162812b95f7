"""Rows of conversations without a head: receipts of their erasure, and rows that should not exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.erasures import NEWEST_FIRST

_TABLES = {
    "frames": "version",
    "messages": "valid_from",
    "eras": "valid_from",
    "context_settings": "valid_from",
    "runs": "requested_version",
    "tool_calls": "requested_version",
    "outcome_changes": "version",
}
"""Tables in which a conversation without a head has no rows, each with the column of its versions."""

MAX_ROWS = 100
"""Maximum number of rows without a head that are listed per table."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A conversation that has rows in a table but no head: their lowest version, and their number."""

    context_id: str
    name: str
    version: int
    count: int


@dataclass(frozen=True, slots=True)
class ErasureSummary:
    """The newest erasure of a conversation, from its receipt."""

    context_id: str
    version: int
    frame_count: int
    erased_at: datetime
    lives_again: bool
    """Whether it has a head, because later frames exist."""


async def without_head(connection: Connection, context_ids: Sequence[str] | None) -> list[Leftover]:
    """Returns the rows of conversations without a head, at most `MAX_ROWS` of each table. None for `context_ids`
    selects all conversations, and reads an index of each table once."""
    async with connection.cursor(row_factory=class_row(Leftover)) as cursor:
        await cursor.execute(_WITHOUT_HEAD, {"ids": None if context_ids is None else list(context_ids)})
        return await cursor.fetchall()


async def receipts(connection: Connection, context_ids: Sequence[str] | None) -> list[ErasureSummary]:
    """Returns the newest receipt of each of these conversations that was erased; of all if `context_ids` is None."""
    async with connection.cursor(row_factory=class_row(ErasureSummary)) as cursor:
        await cursor.execute(
            f"""
            SELECT DISTINCT ON (context_id) context_id, version, frame_count, erased_at, EXISTS (
                SELECT FROM contexts WHERE contexts.context_id = erasures.context_id
            ) AS lives_again
            FROM erasures
            WHERE %(ids)s::text[] IS NULL OR context_id = ANY (%(ids)s::text[])
            ORDER BY context_id, {NEWEST_FIRST}
            """,
            {"ids": None if context_ids is None else list(context_ids)},
        )
        return await cursor.fetchall()


_WITHOUT_HEAD = " UNION ALL ".join(
    f"""
    (SELECT context_id, '{table}' AS name, min({version}) AS version, count(*) AS count
    FROM {table}
    WHERE (%(ids)s::text[] IS NULL OR context_id = ANY (%(ids)s::text[]))
        AND NOT EXISTS (SELECT FROM contexts WHERE contexts.context_id = {table}.context_id)
    GROUP BY context_id
    ORDER BY context_id
    LIMIT {MAX_ROWS})
    """
    for table, version in _TABLES.items()
)

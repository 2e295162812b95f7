"""What a rerun reads from its original: runs, their texts and calls, and the recorded results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run that has started."""

    run_id: str
    opened_version: int
    trigger: str
    """The type of the frame that requested it."""

    status: str
    provider: str | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    started_at: datetime | None
    first_text_at: datetime | None
    closed_at: datetime | None
    error: str | None
    said: str | None
    """The text that it had generated when it was interrupted, if the context keeps only a part of that."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A recorded call. `result` is None without a result."""

    run_id: str | None
    function_name: str
    arguments: Any
    status: str
    result: Any


async def runs_from(connection: Connection, context_id: str, version: int, limit: int) -> list[RecordedRun]:
    """Returns the runs of a conversation that read this version of it or a later one, in order."""
    async with connection.cursor(row_factory=class_row(RecordedRun)) as cursor:
        await cursor.execute(
            """
            SELECT run_id, opened_version, trigger, status, provider, model, input_tokens, output_tokens,
                cache_read_tokens, cache_write_tokens, started_at, first_text_at, closed_at, error, said
            FROM runs
            WHERE context_id = %s AND opened_version >= %s
            ORDER BY opened_version
            LIMIT %s
            """,
            (context_id, version, limit),
        )
        return await cursor.fetchall()


async def texts_of(connection: Connection, context_id: str, run_ids: Sequence[str]) -> dict[str, str]:
    """Returns the text of a conversation's runs when they were closed, by run; runs without text are omitted."""
    cursor = await connection.execute(
        """
        SELECT runs.run_id, string_agg(said.text, ' ' ORDER BY said.position)
        FROM runs
        INNER JOIN messages AS said ON said.context_id = runs.context_id AND said.run_id = runs.run_id
            AND said.valid_from > runs.opened_version AND said.valid_from <= runs.closed_version
            AND said.valid_to > runs.closed_version
        WHERE runs.context_id = %s AND runs.run_id = ANY (%s) AND said.role = 'assistant' AND said.text IS NOT NULL
        GROUP BY runs.run_id
        """,
        (context_id, list(run_ids)),
    )
    return dict(await cursor.fetchall())


async def calls_from(connection: Connection, context_id: str, version: int, limit: int) -> list[RecordedCall]:
    """Returns the calls of a conversation that were announced or started after a version, in order."""
    async with connection.cursor(row_factory=class_row(RecordedCall)) as cursor:
        await cursor.execute(
            """
            SELECT run_id, function_name, arguments, status, result
            FROM tool_calls
            WHERE context_id = %s AND requested_version > %s AND NOT builtin
            ORDER BY requested_version, ordinal
            LIMIT %s
            """,
            (context_id, version, limit),
        )
        return await cursor.fetchall()


async def answered_versions(connection: Connection, context_id: str, after: int, limit: int) -> list[int]:
    """Returns the versions after a version that were read by runs which ended normally, in order."""
    cursor = await connection.execute(
        """
        SELECT opened_version FROM runs
        WHERE context_id = %s AND opened_version > %s AND status = 'ended'
        ORDER BY opened_version LIMIT %s
        """,
        (context_id, after, limit),
    )
    return [int(version) for (version,) in await cursor.fetchall()]


async def run_versions(connection: Connection, context_id: str) -> Sequence[int]:
    """Returns the versions that the newest ten runs of a conversation read, the newest first."""
    cursor = await connection.execute(
        """
        SELECT opened_version FROM runs WHERE context_id = %s AND opened_version IS NOT NULL
        ORDER BY opened_version DESC LIMIT 10
        """,
        (context_id,),
    )
    return [int(version) for (version,) in await cursor.fetchall()]


async def active_since(connection: Connection, since: datetime, after: str, limit: int) -> list[str]:
    """Returns conversations with a frame since a time, without experiments, in the order of their ids after an id."""
    cursor = await connection.execute(
        """
        SELECT context_id FROM contexts
        WHERE last_at >= %s AND context_id > %s AND NOT experiment
        ORDER BY context_id LIMIT %s
        """,
        (since, after, limit),
    )
    return [context_id for (context_id,) in await cursor.fetchall()]

"""Queries on the history of a conversation: its timeline, its runs, the differences between two versions, and the
origin of a message.

Each function runs one statement on the caller's connection and changes nothing. The statements call documented SQL
functions, so users of psql can read the same.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import capabilities
from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.contexts import loads

AT_ONCE = 500
"""Number of rows that are fetched together."""

LAST_POSITION = 2**31 - 1
"""The last position that a message can have: the column is an `integer`."""


@dataclass(frozen=True, slots=True)
class TimelineFrame:
    """A frame of a timeline: `did` is what it changed, `said` the beginning of its text; None if there is nothing."""

    version: int
    logged_at: datetime
    type: str
    did: str | None
    said: str | None
    outcome: str
    reason: str | None
    run_id: str | None
    tool_call_id: str | None
    source: str | None
    frame_id: UUID
    causation_id: UUID | None


async def timeline(
    connection: Connection, context_id: str, first: int | None = None, last: int | None = None
) -> AsyncGenerator[TimelineFrame, None]:
    """Yields the frames of a conversation between two versions, in order, as the database sends them.

    Close it (`aclosing`) if you do not read all frames: the connection is busy until then.
    """
    async with connection.cursor(row_factory=class_row(TimelineFrame)) as cursor:
        async for frame in cursor.stream(
            """
            SELECT version, logged_at, type, did, said, outcome, reason, run_id, tool_call_id, source, frame_id,
                causation_id
            FROM timeline_of(%s, %s, %s)
            """,
            (context_id, first, last),
            size=_at_once(),
        ):
            yield frame


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run: its row of `runs`, without the columns for workers. `words` is the beginning of its text, or else of its
    error."""

    requested_version: int
    opened_version: int | None
    closed_version: int | None
    run_id: str
    trigger: str
    status: str
    finish_reason: str | None
    attempt: int
    provider: str | None
    model: str | None
    worker: str | None
    requested_at: datetime
    opened_at: datetime | None
    started_at: datetime | None
    first_text_at: datetime | None
    closed_at: datetime | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    usage_partial: bool
    request_sha256: str | None
    error: str | None
    error_code: str | None
    words: str | None


async def runs(connection: Connection, context_id: str) -> list[RunLine]:
    """Returns the runs of a conversation, in the order in which they were requested."""
    async with connection.cursor(row_factory=class_row(RunLine)) as cursor:
        await cursor.execute(
            """
            SELECT run.requested_version, run.opened_version, run.closed_version, run.run_id, run.trigger, run.status,
                run.finish_reason, run.attempt, run.provider, run.model, run.worker, run.requested_at, run.opened_at,
                run.started_at, run.first_text_at, run.closed_at, run.input_tokens, run.output_tokens,
                run.cache_read_tokens, run.cache_write_tokens, run.reasoning_tokens, run.usage_partial,
                run.request_sha256, run.error, run.error_code, history.said AS words
            FROM runs AS run
            LEFT JOIN run_history AS history
                ON history.context_id = run.context_id AND history.version = run.requested_version
            WHERE run.context_id = %(id)s
            ORDER BY run.requested_version
            """,
            {"id": context_id},
        )
        return await cursor.fetchall()


async def traces_begin(
    connection: Connection, context_id: str, first: int, last: int
) -> list[tuple[int, str]]:
    """Returns, in their order, the first frame of each trace that begins between two versions, and its id."""
    cursor = await connection.execute(
        """
        SELECT min(version), trace_id
        FROM frames
        WHERE context_id = %s AND version BETWEEN %s AND %s AND trace_id IS NOT NULL
        GROUP BY trace_id
        ORDER BY 1
        """,
        (context_id, first, last),
    )
    return await cursor.fetchall()


async def traces_at(connection: Connection, context_id: str, versions: Sequence[int]) -> dict[int, str]:
    """Returns the trace ids of those of these frames that have one, by version."""
    cursor = await connection.execute(
        "SELECT version, trace_id FROM frames WHERE context_id = %s AND version = ANY(%s) AND trace_id IS NOT NULL",
        (context_id, list(versions)),
    )
    return dict(await cursor.fetchall())


async def runs_named(connection: Connection, context_id: str, beginning: str) -> list[str]:
    """Returns at most two run ids of a conversation with this prefix."""
    cursor = await connection.execute(
        "SELECT run_id FROM runs WHERE context_id = %s AND starts_with(run_id, %s) ORDER BY run_id LIMIT 2",
        (context_id, beginning),
    )
    return [run_id for (run_id,) in await cursor.fetchall()]


async def starts_of_run(connection: Connection, context_id: str, run_id: str) -> list[bytes]:
    """Returns the start frames of a run's attempts, as published, in order; none for a run that never opened."""
    cursor = await connection.execute(
        """
        SELECT convert_to(frames.payload::text, 'UTF8')
        FROM runs
        INNER JOIN frames ON frames.context_id = runs.context_id AND frames.version > runs.opened_version
        WHERE runs.context_id = %(id)s AND runs.run_id = %(run)s
            AND frames.run_id = %(run)s AND frames.type = 'LLMFullResponseStartFrame'
        ORDER BY frames.version
        """,
        {"id": context_id, "run": run_id},
    )
    return [payload for (payload,) in await cursor.fetchall()]


async def difference(connection: Connection, context_id: str, a: int, b: int) -> dict[str, Any] | None:
    """Returns the result of `context_diff` for two versions, and `eras`, those of a and b; None if one does not
    exist."""
    texts = await difference_text(connection, context_id, a, b)
    return None if texts is None else loads(texts[0]) | {"eras": texts[1]}


async def difference_text(
    connection: Connection, context_id: str, a: int, b: int
) -> tuple[str, list[int]] | None:
    """The same as JSON text; the eras are returned separately."""
    cursor = await connection.execute(
        """
        SELECT context_diff(%(id)s, %(a)s, %(b)s)::text, era_at(%(id)s, %(a)s), era_at(%(id)s, %(b)s)
        """,
        {"id": context_id, "a": a, "b": b},
    )
    [(text, *eras)] = await cursor.fetchall()
    return None if text is None else (text, eras)


async def explanation(
    connection: Connection, context_id: str, position: int, version: int
) -> dict[str, Any] | None:
    """Returns the result of `explain_message` for the message at a position; None if there is none."""
    text = await explanation_text(connection, context_id, position, version)
    return None if text is None else loads(text)


async def explanation_text(
    connection: Connection, context_id: str, position: int, version: int
) -> str | None:
    """The same as JSON text."""
    if position > LAST_POSITION:
        # Not a valid position for the function.
        return None
    cursor = await connection.execute(
        "SELECT explain_message(%s, %s, %s)::text", (context_id, position, version)
    )
    [(text,)] = await cursor.fetchall()
    return None if text is None else str(text)


async def last_of_era(connection: Connection, context_id: str, era: int) -> int | None:
    """Returns the last version of an era, for the current era the newest version; None if there is no such era."""
    cursor = await connection.execute(
        """
        SELECT coalesce(
            (SELECT min(valid_from) - 1 FROM eras WHERE context_id = %(id)s AND eras.era > %(era)s), head.version
        )
        FROM contexts AS head
        WHERE context_id = %(id)s AND %(era)s BETWEEN 1 AND head.era
        """,
        {"id": context_id, "era": era},
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


def _at_once() -> int:
    """Returns the number of rows that libpq hands over together; before its version 17 one by one."""
    return AT_ONCE if capabilities.has_stream_chunked() else 1

"""The current activity of the installation: work that finished recently, is in progress, or failed.

Each function runs one statement on the caller's connection and changes nothing. They read only partial indexes of open
work, or the runs and calls of the last hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


@dataclass(frozen=True, slots=True)
class Finished:
    """Work that finished within the last `seconds`, if it was requested within the last hour."""

    seconds: int
    runs: Mapping[str, int]
    """Their number by status."""

    calls: Mapping[str, int]
    """By status."""

    first_text_p50: float | None
    """Seconds from the request of a run until its first text; None without such a run."""

    first_text_p95: float | None
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class InProgress:
    """A run or a call that is not over. The longest ones come first."""

    kind: str
    """`run` or `call`."""

    name: str | None
    """The model, once it is known, or the function."""

    status: str
    seconds: float
    """The time since it was requested."""

    worker: str | None
    context_id: str
    version: int
    """The version of the frame that requested it."""


@dataclass(frozen=True, slots=True)
class WentWrong:
    """A run or a call that failed. The latest come first."""

    at: datetime
    kind: str
    name: str | None
    status: str
    error: str | None
    context_id: str
    version: int
    """The version of the frame that ended it, or else requested it."""


async def finished(connection: Connection, seconds: int) -> Finished:
    """Returns the work that finished within the last `seconds`."""
    cursor = await connection.execute(
        """
        WITH
        over AS MATERIALIZED (
            SELECT status, first_text_at - requested_at AS first_text, input_tokens, output_tokens
            FROM runs
            WHERE requested_at > statement_timestamp() - interval '1 hour'
                AND closed_at > statement_timestamp() - %(seconds)s * interval '1 second'
        ),
        settled AS (
            SELECT status, count(*) AS calls
            FROM tool_calls
            WHERE requested_at > statement_timestamp() - interval '1 hour'
                AND settled_at > statement_timestamp() - %(seconds)s * interval '1 second'
            GROUP BY status
        )
        SELECT
            %(seconds)s,
            (
                SELECT coalesce(jsonb_object_agg(status, runs), '{}')
                FROM (SELECT status, count(*) AS runs FROM over GROUP BY status) AS by_status
            ),
            (SELECT coalesce(jsonb_object_agg(status, calls), '{}') FROM settled),
            percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM first_text)::double precision),
            percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM first_text)::double precision),
            coalesce(sum(input_tokens), 0)::bigint,
            coalesce(sum(output_tokens), 0)::bigint
        FROM over
        """,
        {"seconds": seconds},
    )
    row = await cursor.fetchone()
    assert row is not None
    return Finished(*row)


async def in_progress(connection: Connection, limit: int) -> list[InProgress]:
    """Returns up to `limit` runs and calls that are open, those that were requested first."""
    async with connection.cursor(row_factory=class_row(InProgress)) as cursor:
        await cursor.execute(
            """
            SELECT kind, name, status,
                extract(epoch FROM statement_timestamp() - requested_at)::double precision AS seconds,
                worker, context_id, version
            FROM (
                (
                    SELECT 'run' AS kind, model AS name, status, requested_at, worker, context_id,
                        requested_version AS version
                    FROM runs
                    WHERE status = 'open'
                    ORDER BY opened_at
                    LIMIT %(limit)s
                )
                UNION ALL
                (
                    SELECT 'call', function_name, status, requested_at, worker, context_id, requested_version
                    FROM tool_calls
                    WHERE status IN ('announced', 'dispatched', 'running')
                    ORDER BY requested_at
                    LIMIT %(limit)s
                )
            ) AS work
            ORDER BY requested_at
            LIMIT %(limit)s
            """,
            {"limit": limit},
        )
        return await cursor.fetchall()


async def went_wrong(connection: Connection, limit: int) -> list[WentWrong]:
    """Returns up to `limit` runs and calls that failed, of those that were requested within the last hour."""
    async with connection.cursor(row_factory=class_row(WentWrong)) as cursor:
        await cursor.execute(
            """
            SELECT at, kind, name, status, error, context_id, version
            FROM (
                SELECT closed_at AS at, 'run' AS kind, model AS name, status,
                    concat_ws(': ', error_code, error) AS error, context_id,
                    coalesce(closed_version, requested_version) AS version
                FROM runs
                WHERE requested_at > statement_timestamp() - interval '1 hour' AND status = 'failed'
                UNION ALL
                SELECT settled_at, 'call', function_name, status, left(result::text, 200), context_id,
                    coalesce(settled_version, requested_version)
                FROM tool_calls
                WHERE requested_at > statement_timestamp() - interval '1 hour' AND status IN ('failed', 'ambiguous')
            ) AS failures
            ORDER BY at DESC NULLS LAST, context_id, version
            LIMIT %s
            """,
            (limit,),
        )
        return await cursor.fetchall()

"""Open work that cannot be done, because no live worker has it and none serves it. For the report to an operator.

Work that waits for a free slot of a live worker is not included.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.rows import class_row

from frameledger_services.claims import rules
from frameledger_services.database_types import Connection

AFTER_SECONDS = 5.0
"""The minimum age of such work: a worker may be starting, or being replaced."""

EXAMINED = 1_000
"""Maximum number of rows that are examined, the oldest first."""


@dataclass(frozen=True, slots=True)
class Unserved:
    """Runs or calls that wait for one model or function, `name`; None for runs that any model may answer."""

    name: str | None
    count: int
    oldest_secs: float


@dataclass(frozen=True, slots=True)
class OpenWork:
    """Open work in contexts that are neither parked nor recordings, and the number of live timekeepers."""

    runs: int
    calls: int
    speakers: int
    """Contexts in which the user's turn or the bot's speech is open."""

    timekeepers: int


async def unserved_runs(connection: Connection) -> list[Unserved]:
    """Returns unserved open runs by model, those that wait longest first.

    A run that started without ever being claimed is omitted: a program without a row in the tables answers it.
    """
    return await _unserved(connection, _RUNS)


async def unserved_calls(connection: Connection) -> list[Unserved]:
    """Returns unserved dispatched calls by function, those that wait longest first.

    A built-in tool counts as the function that it acts on.
    """
    return await _unserved(connection, _CALLS)


async def open_work(connection: Connection) -> OpenWork:
    """Returns the work that a timekeeper would watch."""
    async with connection.cursor(row_factory=class_row(OpenWork)) as cursor:
        await cursor.execute(_OPEN)
        row = await cursor.fetchone()
    assert row is not None, "a SELECT without FROM has one row"
    return row


async def _unserved(connection: Connection, statement: str) -> list[Unserved]:
    async with connection.cursor(row_factory=class_row(Unserved)) as cursor:
        await cursor.execute(statement, {"after_secs": AFTER_SECONDS, "examined": EXAMINED})
        return await cursor.fetchall()


# A finished claim means that the work was done: its frames are in transit.
_TO_DO = f"claim.finished_at IS NULL AND {rules.NOT_HELD}"


def _not_served(kind: str, name: str) -> str:
    return f"""
        NOT EXISTS (
            SELECT FROM workers AS serving
            WHERE serving.stopped_at IS NULL AND serving.kind = '{kind}' AND {rules.alive("serving")}
                AND ({name} IS NULL OR serving.serves_all OR {name} = ANY (serving.serves))
        )
    """


_COUNTED = """
    count(*) AS count, extract(epoch FROM clock_timestamp() - min(claimable.since))::float8 AS oldest_secs
"""

_RUNS = f"""
    SELECT model.name, {_COUNTED}
    FROM (
        SELECT context_id, run_id, opened_version AS version, opened_at AS since, started_at
        FROM runs
        WHERE status = 'open' AND opened_at < now() - make_interval(secs => %(after_secs)s)
        ORDER BY opened_at
        LIMIT %(examined)s
    ) AS claimable
    {rules.ACTIVE_CONTEXT}
    CROSS JOIN LATERAL (SELECT {rules.MODEL} AS name) AS model
    LEFT JOIN claims AS claim
        ON claim.context_id = claimable.context_id AND claim.version = claimable.version
            AND claim.run_id = claimable.run_id
    {rules.HOLDER_OF_CLAIM}
    WHERE {_TO_DO} AND (claimable.started_at IS NULL OR claim.effect_id IS NOT NULL)
        AND {_not_served("inference", "model.name")}
    GROUP BY model.name
    ORDER BY oldest_secs DESC
"""

_CALLS = f"""
    SELECT function.name, {_COUNTED}
    FROM (
        SELECT context_id, tool_call_id, dispatched_version AS version, dispatched_at AS since, function_name, builtin
        FROM tool_calls
        WHERE status = 'dispatched' AND dispatched_at < now() - make_interval(secs => %(after_secs)s)
        ORDER BY requested_at
        LIMIT %(examined)s
    ) AS claimable
    {rules.ACTIVE_CONTEXT}
    CROSS JOIN LATERAL (SELECT {rules.FUNCTION.replace("tool_calls.", "claimable.")} AS name) AS function
    LEFT JOIN claims AS claim
        ON claim.context_id = claimable.context_id AND claim.version = claimable.version
            AND claim.tool_call_id = claimable.tool_call_id
    {rules.HOLDER_OF_CLAIM}
    WHERE {_TO_DO} AND {_not_served("functions", "function.name")}
    GROUP BY function.name
    ORDER BY oldest_secs DESC
"""

_OPEN = f"""
    SELECT
        (SELECT count(*) FROM runs AS claimable {rules.ACTIVE_CONTEXT} WHERE claimable.status = 'open') AS runs,
        (
            SELECT count(*) FROM tool_calls AS claimable {rules.ACTIVE_CONTEXT}
            WHERE claimable.status IN ('announced', 'dispatched', 'running')
        ) + (
            SELECT count(*) FROM tool_calls AS claimable {rules.ACTIVE_CONTEXT} WHERE claimable.status = 'waiting'
        ) AS calls,
        (
            SELECT count(*) FROM contexts
            WHERE (turn_opened_version IS NOT NULL OR bot_since_version IS NOT NULL)
                AND parked_version IS NULL AND NOT recording
        ) AS speakers,
        (
            SELECT count(*) FROM workers
            WHERE stopped_at IS NULL AND kind = 'timekeeper' AND {rules.alive("workers")}
        ) AS timekeepers
"""

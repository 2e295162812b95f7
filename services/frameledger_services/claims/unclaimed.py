"""Open work that has no claim a while after it was requested. For claims of dead workers see `takeover`.

Usually the member of the group that reads an effect claims it. It does not if it does not serve it and another member
does (a new release is being rolled out), if the worker that listed it died at that moment, or if it has no free slot.
And a database that lost its latest commits may have lost the claim, or granted one attempt twice, which leaves a
finished claim of unfinished work. So a worker with a free slot executes this query from time to time. An effect's id is
derived from its row, so this requests the same claim as the effect on the topic, and one of the two gets it.
"""

from __future__ import annotations

from frameledger import effects
from frameledger_services.claims import rules
from frameledger_services.database_types import Connection

AFTER_SECONDS = 2.0
"""The minimum age of such work; usually an effect is claimed within milliseconds."""


async def unclaimed_runs(connection: Connection, worker_id: str, limit: int) -> list[effects.RunInference]:
    """Returns the effects of at most `limit` open, unclaimed runs that this worker serves, the oldest first."""
    cursor = await connection.execute(
        _RUNS, {"worker_id": worker_id, "limit": limit, "after_secs": AFTER_SECONDS}
    )
    return [effects.RunInference.of(*row) for row in await cursor.fetchall()]


async def unclaimed_calls(connection: Connection, worker_id: str, limit: int) -> list[effects.CallFunction]:
    """Returns the effects of at most `limit` unclaimed calls, dispatched or running, that this worker serves."""
    cursor = await connection.execute(
        _CALLS, {"worker_id": worker_id, "limit": limit, "after_secs": AFTER_SECONDS}
    )
    return [effects.CallFunction.of(*row) for row in await cursor.fetchall()]


_RUNS = f"""
    WITH {rules.ME}
    SELECT claimable.context_id, claimable.version, claimable.run_id,
        {rules.frame_id_at("claimable.version", of="claimable")}
    FROM me
    CROSS JOIN LATERAL (
        SELECT runs.context_id, runs.opened_version AS version, runs.run_id, runs.opened_at, runs.attempt, runs.claim
        FROM runs
        WHERE runs.status = 'open'
            AND runs.opened_at < clock_timestamp() - %(after_secs)s * interval '1 second'
    ) AS claimable
    {rules.ACTIVE_OWNED_CONTEXT}
    CROSS JOIN LATERAL (SELECT {rules.MODEL} AS name) AS model
    LEFT JOIN claims AS had
        ON had.context_id = claimable.context_id AND had.version = claimable.version
            AND had.run_id = claimable.run_id
    WHERE {rules.claimable_run("claimable", "had")}
        AND {rules.served("model.name")}
    ORDER BY claimable.opened_at
    LIMIT %(limit)s
"""

_CALLS = f"""
    WITH {rules.ME}
    SELECT claimable.context_id, claimable.dispatched_version, claimable.requested_version, claimable.ordinal,
        claimable.tool_call_id, claimable.function_name, claimable.group_id,
        {rules.frame_id_at("claimable.dispatched_version", of="claimable")}
    FROM me
    CROSS JOIN LATERAL (
        SELECT tool_calls.*
        FROM tool_calls
        WHERE tool_calls.status IN ('dispatched', 'running') AND {rules.NOT_STARTED_RECENTLY}
            AND tool_calls.dispatched_at < clock_timestamp() - %(after_secs)s * interval '1 second'
    ) AS claimable
    {rules.ACTIVE_OWNED_CONTEXT}
    CROSS JOIN LATERAL (SELECT {rules.FUNCTION.replace("tool_calls.", "claimable.")} AS name) AS function
    LEFT JOIN claims AS had
        ON had.context_id = claimable.context_id AND had.version = claimable.dispatched_version
            AND had.tool_call_id = claimable.tool_call_id
    WHERE {rules.claimable_call("claimable", "had")}
        AND {rules.served_call("function.name")}
    ORDER BY claimable.requested_at
    LIMIT %(limit)s
"""

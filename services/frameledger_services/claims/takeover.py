"""Taking over work that another worker had: it was released, or its worker is dead. The claim gets the next attempt.

A worker declares no other worker dead before it has been connected for a whole lease itself: when the database comes
back, all heartbeats are old, and the others need time to send theirs. Released work may be taken at once. Rows that
another takeover has locked are skipped, so that two takeovers never wait for each other, and each row goes to one of
them.

If the process dies after the statement, or its answer is lost, the work is taken over once more in the same way.
"""

from __future__ import annotations

from frameledger.ids import ContextId, RunId, ToolCallId, Version
from frameledger_services.claims import rules
from frameledger_services.claims.values import ClaimedCall, ClaimedRun
from frameledger_services.database_types import Connection
from frameledger_services.telemetry import tracing


async def take_over_runs(connection: Connection, worker_id: str, limit: int) -> list[ClaimedRun]:
    """Take over at most `limit` open runs that this worker serves, the oldest claims first. Returns them.

    Raises `WorkerDeadError`.
    """
    cursor = await connection.execute(_TAKE_RUNS, {"worker_id": worker_id, "limit": limit})
    runs = []
    for is_alive, cause, trace_id, *row in await cursor.fetchall():
        if not is_alive:
            raise rules.dead(worker_id)
        if row[0] is not None:
            effect_id, context_id, version, run_id, attempt, token, deaths, trigger, age_secs = row
            runs.append(
                ClaimedRun(
                    effect_id=effect_id,
                    context_id=ContextId(context_id),
                    version=Version(version),
                    run_id=RunId(run_id),
                    attempt=attempt,
                    claim=token,
                    causation_id=cause,
                    trigger=trigger,
                    age_secs=age_secs,
                    traceparent=tracing.of_stored(trace_id, cause),
                    taken_over=True,
                    deaths=deaths,
                )
            )
    return sorted(runs, key=lambda run: (run.context_id, run.version))


async def take_over_calls(connection: Connection, worker_id: str, limit: int) -> list[ClaimedCall]:
    """Take over at most `limit` calls, dispatched or running, that this worker serves. Returns them.

    A call that must be cancelled, or that is unsafe and had started, must be settled and not run. Raises
    `WorkerDeadError`.
    """
    cursor = await connection.execute(_TAKE_CALLS, {"worker_id": worker_id, "limit": limit})
    calls = []
    for is_alive, cause, trace_id, *row in await cursor.fetchall():
        if not is_alive:
            raise rules.dead(worker_id)
        if row[0] is not None:
            (
                effect_id,
                context_id,
                version,
                requested_version,
                ordinal,
                call,
                attempt,
                token,
                deaths,
                *columns,
            ) = row
            calls.append(
                ClaimedCall(
                    *columns,
                    effect_id=effect_id,
                    context_id=ContextId(context_id),
                    version=Version(version),
                    requested_version=Version(requested_version),
                    ordinal=ordinal,
                    tool_call_id=ToolCallId(call),
                    call_attempt=attempt,
                    claim=token,
                    deaths=deaths,
                    causation_id=cause,
                    traceparent=tracing.of_stored(trace_id, cause),
                    taken_over=True,
                )
            )
    return sorted(calls, key=lambda call: (call.context_id, call.requested_version, call.ordinal))


async def finish_over(connection: Connection, worker_id: str) -> int:
    """Finish up to a thousand claims, of either kind, that could be taken over but whose run or call has ended. Returns
    their number.

    A call that waits for a person counts as ended: no worker has to do anything. Does nothing if the worker is dead.
    """
    cursor = await connection.execute(_FINISH_OVER, {"worker_id": worker_id})
    return cursor.rowcount


# Finds what may be taken by two indexes: of released claims, and of each worker's unfinished ones. Only workers with
# unfinished claims are examined, each found after the one before it, because dead workers are kept for a year and this
# is executed every second.
_FREE = f"""
    owners (worker_id) AS (
        (SELECT worker_id FROM claims WHERE finished_at IS NULL ORDER BY worker_id LIMIT 1)
        UNION ALL
        SELECT (
            SELECT claims.worker_id
            FROM claims
            WHERE claims.finished_at IS NULL AND claims.worker_id > owners.worker_id
            ORDER BY claims.worker_id
            LIMIT 1
        )
        FROM owners
        WHERE owners.worker_id IS NOT NULL
    ), free AS (
        SELECT claims.effect_id, claims.attempt
        FROM claims
        WHERE claims.finished_at IS NULL AND claims.released_at IS NOT NULL
        UNION
        SELECT claims.effect_id, claims.attempt
        FROM me
        CROSS JOIN owners
        JOIN workers AS owner ON owner.worker_id = owners.worker_id AND NOT {rules.alive("owner")}
            AND me.connected_at
                <= clock_timestamp() - greatest(owner.lease_secs, me.lease_secs) * interval '1 second'
        JOIN claims ON claims.worker_id = owner.worker_id AND claims.finished_at IS NULL
    )
"""

# The claim is checked again when its row is locked: another takeover would have raised its attempt.
_CLAIMABLE = """
    FROM me
    CROSS JOIN free
    JOIN claims AS claimable ON claimable.effect_id = free.effect_id AND claimable.attempt = free.attempt
        AND claimable.finished_at IS NULL
"""

_TAKE = f"""
    UPDATE claims
    SET worker_id = mine.new_worker_id, service = mine.new_service, token = DEFAULT,
        attempt = {rules.attempt_after("claims.attempt", "mine.started_attempt")},
        deaths = claims.deaths + CASE WHEN claims.released_at IS NULL THEN 1 ELSE 0 END,
        taken_at = clock_timestamp(), released_at = NULL
    FROM mine
    WHERE claims.effect_id = mine.effect_id
"""

_TAKE_RUNS = f"""
    WITH RECURSIVE {rules.ME}, {_FREE}, mine AS (
        SELECT claimable.effect_id, me.worker_id AS new_worker_id, me.service AS new_service,
            runs.attempt AS started_attempt, {rules.RUN_COLUMNS}
        {_CLAIMABLE} AND claimable.kind = 'run'
        {rules.ACTIVE_OWNED_CONTEXT}
        {rules.OPEN_RUN}
        CROSS JOIN LATERAL (SELECT {rules.MODEL} AS name) AS model
        WHERE {rules.served("model.name")}
        ORDER BY claimable.claimed_at
        LIMIT %(limit)s
        FOR UPDATE OF claimable SKIP LOCKED
    ), taken AS (
        {_TAKE}
        RETURNING claims.effect_id, claims.context_id, claims.version, claims.run_id, claims.attempt, claims.token,
            claims.deaths, mine.trigger, mine.age_secs
    )
    SELECT EXISTS (SELECT FROM me), {rules.frame_id_at("taken.version", of="taken")},
        {rules.trace_id_at("taken.version", of="taken")}, taken.*
    FROM (VALUES (true)) AS always LEFT JOIN taken ON true
"""

_TAKE_CALLS = f"""
    WITH RECURSIVE {rules.ME}, {_FREE}, mine AS (
        SELECT claimable.effect_id, me.worker_id AS new_worker_id, me.service AS new_service,
            tool_calls.attempt AS started_attempt, {rules.CALL_COLUMNS}
        {_CLAIMABLE} AND claimable.kind = 'call'
        {rules.ACTIVE_OWNED_CONTEXT}
        {rules.open_call("dispatched", "running")}
        CROSS JOIN LATERAL (SELECT {rules.FUNCTION} AS name) AS function
        WHERE {rules.served_call("function.name")}
        ORDER BY claimable.claimed_at
        LIMIT %(limit)s
        FOR UPDATE OF claimable SKIP LOCKED
    ), taken AS (
        {_TAKE}
        RETURNING claims.effect_id, claims.context_id, claims.version, claims.requested_version, claims.ordinal,
            claims.tool_call_id, claims.attempt, claims.token, claims.deaths,
            {rules.call_columns_of("mine")}
    )
    SELECT EXISTS (SELECT FROM me), {rules.frame_id_at("taken.version", of="taken")},
        {rules.trace_id_at("taken.version", of="taken")}, taken.*
    FROM (VALUES (true)) AS always LEFT JOIN taken ON true
"""

_FINISH_OVER = f"""
    WITH RECURSIVE {rules.ME}, {_FREE}, over AS (
        SELECT claimable.effect_id
        {_CLAIMABLE}
        WHERE CASE claimable.kind
            WHEN 'run' THEN NOT EXISTS (SELECT FROM (VALUES (true)) AS always {rules.OPEN_RUN})
            ELSE NOT EXISTS (
                SELECT FROM (VALUES (true)) AS always {rules.open_call("dispatched", "running")}
            )
        END
        LIMIT 1000
        FOR UPDATE OF claimable SKIP LOCKED
    )
    UPDATE claims SET finished_at = clock_timestamp(), finish = 'over'
    FROM over
    WHERE claims.effect_id = over.effect_id
"""

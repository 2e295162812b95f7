"""Calls that nobody starts: the timekeeper takes them as a worker does, starts them in name, and answers them.

All of it is read off the tables again at each look, nothing is remembered between two:

    taken       the claim is ours, the call is dispatched     -> publish its start, with the claim's attempt
    started     the claim is ours, our start was applied      -> publish the result
    answered    the call is settled                           -> finish the claim

If we die between any two of these, our claim is a dead worker's. The next timekeeper takes it with the next attempt
and goes on from what the tables say: it starts the call if ours was never folded, else it answers it. If we publish
and die before we know, the frame is on the log; the same one again is a repetition. If we only seemed dead, our
attempt is fenced off by the later one.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.rows import class_row

from frameledger import derived
from frameledger.effects import CallFunction
from frameledger.ids import ContextId, ToolCallId, Version
from frameledger_services.claims import rules
from frameledger_services.timekeeper.overdue import Held, Unstarted
from frameledger_services.timekeeper.questions import AT_ONCE, LIVES, Connection

# A catch-all takes what no live worker lists.
_SERVED = f"""
    EXISTS (
        SELECT FROM workers AS serving
        WHERE serving.kind = 'functions' AND {rules.alive("serving")}
            AND (serving.serves_all OR {rules.FUNCTION} = ANY (serving.serves))
    )
"""


async def unstarted(
    connection: Connection, unserved_secs: float | None, unstarted_secs: float | None, current: Sequence[int]
) -> list[Unstarted]:
    """Dispatched calls that no live worker has had for so long: `unserved_secs` if nobody serves the function, else
    `unstarted_secs`; and what a timekeeper that is gone had begun to settle. None leaves such calls alone."""
    async with connection.cursor(row_factory=class_row(Unstarted)) as cursor:
        await cursor.execute(
            f"""
            SELECT tool_calls.context_id, tool_calls.dispatched_version, tool_calls.requested_version,
                tool_calls.ordinal, tool_calls.tool_call_id, coalesce(claim.attempt, 0) AS attempt
            FROM tool_calls
            JOIN contexts AS head ON head.context_id = tool_calls.context_id
            JOIN frames AS dispatched
                ON dispatched.context_id = tool_calls.context_id AND dispatched.version = tool_calls.dispatched_version
            LEFT JOIN claims AS claim
                ON claim.context_id = tool_calls.context_id AND claim.version = tool_calls.dispatched_version
                    AND claim.tool_call_id = tool_calls.tool_call_id
            LEFT JOIN workers AS holder ON holder.worker_id = claim.worker_id
            LEFT JOIN workers AS starter ON starter.worker_id = tool_calls.worker COLLATE "C"
            WHERE tool_calls.status IN ('dispatched', 'running') AND {LIVES}
                AND {rules.alive("holder")} IS NOT TRUE
                AND CASE tool_calls.status
                    WHEN 'dispatched' THEN
                        greatest(dispatched.recorded_at, claim.released_at, holder.heartbeat_at)
                            < now() - make_interval(
                                secs => CASE
                                    WHEN {_SERVED} THEN %(unstarted_secs)s::double precision
                                    ELSE %(unserved_secs)s::double precision
                                END
                            )
                    ELSE starter.kind = 'timekeeper'
                END
                AND dispatched.partition = ANY (%(current)s)
            ORDER BY tool_calls.requested_at
            LIMIT {AT_ONCE}
            """,
            {
                "unserved_secs": unserved_secs,
                "unstarted_secs": unstarted_secs,
                "current": list(current),
            },
        )
        return await cursor.fetchall()


async def take(connection: Connection, worker_id: str, service: str, calls: Sequence[Unstarted]) -> int:
    """Claim those of the calls that are still open and whose claim is still as it was seen; how many.

    Whoever had one of them and was not dead after all finds it lost.
    """
    cursor = await connection.execute(
        """
        INSERT INTO claims AS claim
            (effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, service, worker_id,
            attempt)
        SELECT wanted.effect_id, 'call', call.context_id, call.dispatched_version, call.requested_version,
            call.ordinal, call.tool_call_id, %s, %s, greatest(wanted.attempt, call.attempt) + 1
        FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::int[], %s::int[])
            AS wanted (effect_id, context_id, requested_version, ordinal, attempt)
        JOIN tool_calls AS call USING (context_id, requested_version, ordinal)
        LEFT JOIN claims AS had ON had.effect_id = wanted.effect_id
        -- As it was seen.
        WHERE call.status IN ('dispatched', 'running') AND coalesce(had.attempt, 0) = wanted.attempt
        ORDER BY wanted.effect_id
        ON CONFLICT (effect_id) DO UPDATE SET
            worker_id = excluded.worker_id,
            service = excluded.service,
            attempt = excluded.attempt,
            token = DEFAULT,
            taken_at = clock_timestamp(),
            released_at = NULL,
            finished_at = NULL,
            finish = NULL
        -- Who took it since then was given this attempt, or a later one: it is given out once, to one.
        WHERE claim.attempt < excluded.attempt
        """,
        (
            service,
            worker_id,
            [_effect_id(call) for call in calls],
            [call.context_id for call in calls],
            [call.requested_version for call in calls],
            [call.ordinal for call in calls],
            [call.attempt for call in calls],
        ),
    )
    return cursor.rowcount


async def held(connection: Connection, worker_id: str, current: Sequence[int]) -> list[Held]:
    """The calls that this worker has claimed and that are open, as they stand."""
    async with connection.cursor(row_factory=class_row(Held)) as cursor:
        await cursor.execute(
            f"""
            SELECT claim.effect_id, tool_calls.context_id, head.version, tool_calls.requested_version,
                tool_calls.tool_call_id, tool_calls.function_name, tool_calls.arguments, tool_calls.group_id,
                greatest(claim.attempt, tool_calls.attempt) AS call_attempt, claim.token AS claim, tool_calls.status,
                starter.kind IS NOT DISTINCT FROM 'timekeeper' AS ours,
                coalesce(tool_calls.safe_to_retry, false) AS safe,
                tool_calls.interrupted_version IS NOT NULL AS interrupted,
                {_SERVED} AS served
            FROM claims AS claim
            JOIN tool_calls USING (context_id, requested_version, ordinal)
            JOIN contexts AS head ON head.context_id = tool_calls.context_id
            JOIN frames AS dispatched
                ON dispatched.context_id = tool_calls.context_id AND dispatched.version = tool_calls.dispatched_version
            LEFT JOIN workers AS starter ON starter.worker_id = tool_calls.worker COLLATE "C"
            WHERE claim.worker_id = %(worker_id)s AND claim.finished_at IS NULL AND claim.kind = 'call'
                AND tool_calls.status IN ('dispatched', 'running') AND {LIVES}
                AND dispatched.partition = ANY (%(current)s)
            ORDER BY tool_calls.requested_at
            LIMIT {AT_ONCE}
            """,
            {"worker_id": worker_id, "current": list(current)},
        )
        return await cursor.fetchall()


async def finish_settled(connection: Connection, worker_id: str) -> None:
    """Finish this worker's claims of calls that have ended, or that wait for a person, and of contexts that did."""
    await connection.execute(
        f"""
        UPDATE claims AS claim SET finished_at = clock_timestamp(), finish = 'over'
        WHERE claim.worker_id = %(worker_id)s AND claim.finished_at IS NULL AND NOT EXISTS (
            SELECT FROM tool_calls AS call JOIN contexts AS head ON head.context_id = call.context_id
            WHERE call.context_id = claim.context_id AND call.requested_version = claim.requested_version
                AND call.ordinal = claim.ordinal AND call.status IN ('dispatched', 'running')
                -- A parked one goes on some day.
                AND ({LIVES} OR head.parked_version IS NOT NULL)
        )
        """,
        {"worker_id": worker_id},
    )


def _effect_id(call: Unstarted) -> str:
    """The id of the effect that asked for the call: whoever claims a call claims it under this."""
    return derived.effect_id(
        CallFunction.effect,
        ContextId(call.context_id),
        Version(call.dispatched_version),
        ToolCallId(call.tool_call_id),
    )

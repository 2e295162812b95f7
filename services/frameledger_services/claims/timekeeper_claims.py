"""The timekeeper's claims: calls that no worker starts, which it claims, starts nominally and answers.

Nothing is kept between two sweeps; the tables determine the next step:

    claimed     the claim is ours, the call is dispatched     -> publish a nominal start, with the claim's attempt
    started     the claim is ours, our start was applied      -> publish the final result
    answered    the call is settled                           -> finish the claim

If the process dies between two of these steps, its claim is a dead worker's. The next timekeeper claims the call with
the next attempt and continues from the tables: it starts the call if our start was never folded, otherwise it answers
it. A frame whose publication was never confirmed is published again, as a repetition. If we only seemed dead, the later
attempt fences ours off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from frameledger import derived
from frameledger.effects import CallFunction
from frameledger.ids import ContextId, ToolCallId, Version
from frameledger_services.claims import rules
from frameledger_services.claims.overdue_calls import CallStatus
from frameledger_services.database_types import Connection
from frameledger_services.store.overdue import JUDGED, MAX_ROWS, rows


@dataclass(frozen=True, slots=True)
class UnstartedCall:
    """A dispatched call that no worker starts. `attempt` is that of its claim when it was read, 0 without a claim."""

    context_id: str
    dispatched_version: int
    requested_version: int
    ordinal: int
    tool_call_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class HeldCall:
    """A call that this timekeeper has claimed. `version` is that of the context, `claim` the token of the claim.

    `served`: a live worker lists its function or is a catch-all. `ours`: a timekeeper started it, so nothing runs.
    `causation_id`: the frame that started it, or else the one that dispatched it.
    """

    effect_id: str
    context_id: str
    version: int
    requested_version: int
    tool_call_id: str
    function_name: str
    arguments: Any
    group_id: str | None
    call_attempt: int
    claim: str
    status: CallStatus
    ours: bool
    safe: bool
    interrupted: bool
    served: bool
    causation_id: UUID


# A catch-all takes what no live worker lists.
_SERVED = f"""
    EXISTS (
        SELECT FROM workers AS serving
        WHERE serving.kind = 'functions' AND {rules.alive("serving")}
            AND (serving.serves_all OR {rules.FUNCTION} = ANY (serving.serves))
    )
"""


_BEGAN = "coalesce(tool_calls.started_version, tool_calls.dispatched_version)"


async def unstarted(
    connection: Connection, unserved_secs: float | None, unstarted_secs: float | None, current: Sequence[int]
) -> list[UnstartedCall]:
    """Returns dispatched calls that no live worker had for `unserved_secs` if none serves the function, otherwise for
    `unstarted_secs`, and those that a dead timekeeper had begun to settle. None disables one of the two.

    As with runs (`overdue_runs.unclaimed`), only the timekeeper knows how long workers could claim them.
    """
    return await rows(
        connection,
        UnstartedCall,
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
        {rules.HOLDER_OF_CLAIM}
        LEFT JOIN workers AS starter ON starter.worker_id = tool_calls.worker COLLATE "C"
        WHERE tool_calls.status IN ('dispatched', 'running') AND {JUDGED}
            AND {rules.NOT_HELD}
            AND CASE tool_calls.status
                WHEN 'dispatched' THEN
                    greatest(dispatched.recorded_at, claim.released_at, claim.finished_at, holder.heartbeat_at)
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
        LIMIT {MAX_ROWS}
        """,
        unserved_secs=unserved_secs,
        unstarted_secs=unstarted_secs,
        current=list(current),
    )


async def claim(connection: Connection, worker_id: str, service: str, calls: Sequence[UnstartedCall]) -> int:
    """Claim those of the calls that are still open and whose claim has not changed since it was read. Returns the
    number of claimed calls.

    A worker that had one of them and was not dead after all learns from its heartbeat that it lost the call.
    """
    cursor = await connection.execute(
        f"""
        INSERT INTO claims AS claim
            (effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, service, worker_id,
            attempt)
        SELECT wanted.effect_id, 'call', call.context_id, call.dispatched_version, call.requested_version,
            call.ordinal, call.tool_call_id, %s, %s, {rules.attempt_after("wanted.attempt", "call.attempt")}
        FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::int[], %s::int[])
            AS wanted (effect_id, context_id, requested_version, ordinal, attempt)
        JOIN tool_calls AS call USING (context_id, requested_version, ordinal)
        LEFT JOIN claims AS had ON had.effect_id = wanted.effect_id
        -- Unchanged since it was read.
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
        -- A worker that claimed it since then has this attempt or a later one; each attempt is assigned once.
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


async def held(connection: Connection, worker_id: str, current: Sequence[int]) -> list[HeldCall]:
    """Returns the open calls that this timekeeper has claimed."""
    return await rows(
        connection,
        HeldCall,
        f"""
        SELECT claim.effect_id, tool_calls.context_id, head.version, tool_calls.requested_version,
            tool_calls.tool_call_id, tool_calls.function_name, tool_calls.arguments, tool_calls.group_id,
            greatest(claim.attempt, tool_calls.attempt) AS call_attempt, claim.token AS claim, tool_calls.status,
            starter.kind IS NOT DISTINCT FROM 'timekeeper' AS ours,
            coalesce(tool_calls.safe_to_retry, false) AS safe,
            tool_calls.interrupted_version IS NOT NULL AS interrupted,
            {_SERVED} AS served,
            {rules.frame_id_at(_BEGAN, of="tool_calls")} AS causation_id
        FROM claims AS claim
        JOIN tool_calls USING (context_id, requested_version, ordinal)
        JOIN contexts AS head ON head.context_id = tool_calls.context_id
        JOIN frames AS dispatched
            ON dispatched.context_id = tool_calls.context_id AND dispatched.version = tool_calls.dispatched_version
        LEFT JOIN workers AS starter ON starter.worker_id = tool_calls.worker COLLATE "C"
        WHERE claim.worker_id = %(worker_id)s AND claim.finished_at IS NULL AND claim.kind = 'call'
            AND tool_calls.status IN ('dispatched', 'running') AND {JUDGED}
            AND dispatched.partition = ANY (%(current)s)
        ORDER BY tool_calls.requested_at
        LIMIT {MAX_ROWS}
        """,
        worker_id=worker_id,
        current=list(current),
    )


async def finish_settled(connection: Connection, worker_id: str) -> None:
    """Finish this timekeeper's claims of calls that ended or wait for a person, or whose context ended."""
    await connection.execute(
        f"""
        UPDATE claims AS claim SET finished_at = clock_timestamp(), finish = 'over'
        WHERE claim.worker_id = %(worker_id)s AND claim.finished_at IS NULL AND NOT EXISTS (
            SELECT FROM tool_calls AS call JOIN contexts AS head ON head.context_id = call.context_id
            WHERE call.context_id = claim.context_id AND call.requested_version = claim.requested_version
                AND call.ordinal = claim.ordinal AND call.status IN ('dispatched', 'running')
                -- A parked context may be resumed.
                AND ({JUDGED} OR head.parked_version IS NOT NULL)
        )
        """,
        {"worker_id": worker_id},
    )


def _effect_id(call: UnstartedCall) -> str:
    """Returns the id of the effect that requested the call, which is the key of every claim of it."""
    return derived.effect_id(
        CallFunction.effect,
        ContextId(call.context_id),
        Version(call.dispatched_version),
        ToolCallId(call.tool_call_id),
    )

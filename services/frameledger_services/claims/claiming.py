"""Claiming work that no worker has had: one statement checks whether it is still open, and claims it.

The effect's id is the key of the claim, so if two workers claim it at once, one gets it. Effects are requested in the
order of their topic; the same statement skips work that has ended, that other workers serve, or that is claimed.

If the process dies before the statement, the effect's offset was not committed and another member of the group reads it
again. If it dies after it, the claim exists: the member that reads the effect again finds it claimed, and the work is
taken over (`takeover`) once this worker is dead. If only the answer is lost, the worker is alive but does not know its
claims: `release_all_but` releases them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from frameledger import effects
from frameledger_services.claims import rules
from frameledger_services.claims.values import ClaimedCall, ClaimedRun, ClaimResult
from frameledger_services.database_types import Connection

NONE: Mapping[str, str] = MappingProxyType({})

E = TypeVar("E", effects.RunInference, effects.CallFunction)


async def claim_runs(
    connection: Connection,
    worker_id: str,
    requests: Sequence[effects.RunInference],
    limit: int | None = None,
    traceparents: Mapping[str, str] = NONE,
) -> ClaimResult[ClaimedRun]:
    """Claim those of these runs that are open, served by this worker and not claimed yet, at most `limit` of them.
    `traceparents` are those of the effects that have one, by effect id.

    Raises `WorkerDeadError`, and claims nothing then.
    """
    columns = {"run_ids": [one.run_id for one in requests]}
    result = await _claim(connection, worker_id, requests, limit, _CLAIM_RUNS, columns)
    return ClaimResult([_run(one, traceparents) for one in result.claimed], result.unexamined)


async def claim_calls(
    connection: Connection,
    worker_id: str,
    requests: Sequence[effects.CallFunction],
    limit: int | None = None,
    traceparents: Mapping[str, str] = NONE,
) -> ClaimResult[ClaimedCall]:
    """Claim those of these calls that are dispatched, served by this worker and not claimed yet, at most `limit`.
    `traceparents` as for runs.

    A running call is claimed too if its claim was lost or had no effect, a lease ago. Raises `WorkerDeadError`, and
    claims nothing then.
    """
    result = await _claim(connection, worker_id, requests, limit, _CLAIM_CALLS, _call_columns(requests))
    return ClaimResult([_call(one, traceparents) for one in result.claimed], result.unexamined)


@dataclass(frozen=True, slots=True)
class _GrantedClaim(Generic[E]):
    """A claim that the statement granted this worker, with the columns of its run or call."""

    effect: E
    attempt: int
    token: str
    deaths: int
    columns: Sequence[Any]


def _run(claim: _GrantedClaim[effects.RunInference], traceparents: Mapping[str, str]) -> ClaimedRun:
    effect, (trigger, age_secs) = claim.effect, claim.columns
    return ClaimedRun(
        effect_id=effect.id,
        context_id=effect.context_id,
        version=effect.version,
        run_id=effect.run_id,
        attempt=claim.attempt,
        claim=claim.token,
        causation_id=effect.causation_id,
        trigger=trigger,
        age_secs=age_secs,
        traceparent=traceparents.get(effect.id),
        deaths=claim.deaths,
    )


def _call(claim: _GrantedClaim[effects.CallFunction], traceparents: Mapping[str, str]) -> ClaimedCall:
    effect = claim.effect
    return ClaimedCall(
        *claim.columns,
        effect_id=effect.id,
        context_id=effect.context_id,
        version=effect.version,
        requested_version=effect.requested_version,
        ordinal=effect.ordinal,
        tool_call_id=effect.tool_call_id,
        call_attempt=claim.attempt,
        claim=claim.token,
        deaths=claim.deaths,
        causation_id=effect.causation_id,
        traceparent=traceparents.get(effect.id),
    )


async def _claim(
    connection: Connection,
    worker_id: str,
    requests: Sequence[E],
    limit: int | None,
    statement: str,
    columns: Mapping[str, Any],
) -> ClaimResult[_GrantedClaim[E]]:
    cursor = await connection.execute(
        statement,
        {
            "worker_id": worker_id,
            "limit": limit,
            "effect_ids": [one.id for one in requests],
            "context_ids": [one.context_id for one in requests],
            "versions": [one.version for one in requests],
            **columns,
        },
    )
    claimed: list[_GrantedClaim[E]] = []
    examined: set[int] = set()
    claimed_ids: set[str] = set()
    for is_alive, place, attempt, token, deaths, *values in await cursor.fetchall():
        if not is_alive:
            raise rules.dead(worker_id)
        if place is None:
            break
        examined.add(place)
        effect = requests[place - 1]
        # The topic may contain the same effect twice.
        if attempt is not None and effect.id not in claimed_ids:
            claimed_ids.add(effect.id)
            claimed.append(_GrantedClaim(effect, attempt, token, deaths, values))
    # Effects after the last one within the limit were not examined.
    is_full = limit is not None and len(examined) >= limit
    return ClaimResult(claimed, len(requests) - max(examined, default=0) if is_full else 0)


def _call_columns(requests: Sequence[effects.CallFunction]) -> dict[str, Any]:
    return {
        "requested_versions": [one.requested_version for one in requests],
        "ordinals": [one.ordinal for one in requests],
        "tool_call_ids": [one.tool_call_id for one in requests],
    }


# It returns at least one row, which says whether the worker is alive. Rows are inserted in the order of their key, so
# that two workers that claim the same effects do not deadlock. If two see an existing finished claim, they compute the
# same attempt; the second one finds that it was already assigned.
_CLAIM_AGAIN = """
    ON CONFLICT (effect_id) DO UPDATE SET
        worker_id = excluded.worker_id, service = excluded.service, attempt = excluded.attempt, token = DEFAULT,
        taken_at = clock_timestamp(), released_at = NULL, finished_at = NULL, finish = NULL
    WHERE had.finished_at IS NOT NULL AND had.attempt < excluded.attempt
    RETURNING effect_id, attempt, token, deaths
"""

_CLAIM_RUNS = f"""
    WITH {rules.ME}, claimable AS (
        SELECT *
        FROM unnest(%(effect_ids)s::text[], %(context_ids)s::text[], %(versions)s::bigint[], %(run_ids)s::text[])
            WITH ORDINALITY AS asked (effect_id, context_id, version, run_id, place)
    ), mine AS (
        SELECT claimable.*, me.worker_id, me.service,
            {rules.attempt_after("had.attempt", "runs.attempt")} AS attempt, {rules.RUN_COLUMNS}
        FROM me
        CROSS JOIN claimable
        {rules.ACTIVE_CONTEXT}
        {rules.OPEN_RUN}
        LEFT JOIN claims AS had ON had.effect_id = claimable.effect_id
        CROSS JOIN LATERAL (SELECT {rules.MODEL} AS name) AS model
        WHERE {rules.claimable_run("runs", "had")}
            AND {rules.served("model.name")}
        ORDER BY claimable.place
        LIMIT %(limit)s
    ), taken AS (
        INSERT INTO claims AS had (effect_id, kind, context_id, version, run_id, service, worker_id, attempt)
        SELECT DISTINCT ON (effect_id) effect_id, 'run', context_id, version, run_id, service, worker_id, attempt
        FROM mine
        ORDER BY effect_id
        {_CLAIM_AGAIN}
    )
    SELECT EXISTS (SELECT FROM me), mine.place, taken.attempt, taken.token, taken.deaths, mine.trigger, mine.age_secs
    FROM (VALUES (true)) AS always
    LEFT JOIN mine ON true
    LEFT JOIN taken ON taken.effect_id = mine.effect_id
    ORDER BY mine.place
"""

_CLAIM_CALLS = f"""
    WITH {rules.ME}, claimable AS (
        SELECT *
        FROM unnest(
            %(effect_ids)s::text[], %(context_ids)s::text[], %(versions)s::bigint[],
            %(requested_versions)s::bigint[], %(ordinals)s::int[], %(tool_call_ids)s::text[]
        ) WITH ORDINALITY
            AS asked (effect_id, context_id, version, requested_version, ordinal, tool_call_id, place)
    ), mine AS (
        SELECT claimable.*, me.worker_id, me.service,
            {rules.attempt_after("had.attempt", "tool_calls.attempt")} AS attempt, {rules.CALL_COLUMNS}
        FROM me
        CROSS JOIN claimable
        {rules.ACTIVE_CONTEXT}
        {rules.open_call("dispatched", "running")}
        LEFT JOIN claims AS had ON had.effect_id = claimable.effect_id
        CROSS JOIN LATERAL (SELECT {rules.FUNCTION} AS name) AS function
        WHERE {rules.claimable_call("tool_calls", "had")} AND {rules.NOT_STARTED_RECENTLY}
            AND {rules.served_call("function.name")}
        ORDER BY claimable.place
        LIMIT %(limit)s
    ), taken AS (
        INSERT INTO claims AS had (
            effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, service, worker_id,
            attempt
        )
        SELECT DISTINCT ON (effect_id) effect_id, 'call', context_id, version, requested_version, ordinal,
            tool_call_id, service, worker_id, attempt
        FROM mine
        ORDER BY effect_id
        {_CLAIM_AGAIN}
    )
    SELECT EXISTS (SELECT FROM me), mine.place, taken.attempt, taken.token, taken.deaths,
        {rules.call_columns_of("mine")}
    FROM (VALUES (true)) AS always
    LEFT JOIN mine ON true
    LEFT JOIN taken ON taken.effect_id = mine.effect_id
    ORDER BY mine.place
"""

"""Taking work that nobody has had: one statement looks whether it is still open, and takes it.

The effect's id is the key of the claim, so of two who ask at once one gets it. Effects are asked for in the order of
their topic; the work that is over, somebody else's to serve, or taken is passed over in the same statement.

If the process dies before the statement, the effect's offset was not committed and another member of the group reads
it again. If it dies after it, the claim is there: the effect read again is found taken, and the work is taken over
(`taking_over`) once this worker is dead. If only the answer is lost, the worker lives and does not know what it has:
`release_all_but` gives that back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from frameledger import effects
from frameledger_services.claims import rules
from frameledger_services.claims.values import ClaimedCall, ClaimedRun, ClaimResult, Connection

E = TypeVar("E", effects.RunInference, effects.CallFunction)
C = TypeVar("C")


async def claim_runs(
    connection: Connection, worker_id: str, asked: Sequence[effects.RunInference], limit: int | None = None
) -> ClaimResult[ClaimedRun]:
    """Take those of these runs that are open, that this worker serves and that nobody had, at most `limit` of them.

    Raises `WorkerDeadError`, and nothing is taken then.
    """

    def claimed(effect: effects.RunInference, attempt: int, token: str, _: Any) -> ClaimedRun:
        return ClaimedRun(effect.id, effect.context_id, effect.version, effect.run_id, attempt, token)

    columns = {"run_ids": [one.run_id for one in asked]}
    return await _claim(connection, worker_id, asked, limit, _CLAIM_RUNS, columns, claimed)


async def claim_calls(
    connection: Connection, worker_id: str, asked: Sequence[effects.CallFunction], limit: int | None = None
) -> ClaimResult[ClaimedCall]:
    """Take those of these calls that are dispatched, that this worker serves and that nobody had, at most `limit`.

    One that runs is taken too, if its claim was lost or came to nothing, a lease ago. Raises `WorkerDeadError`, and
    nothing is taken then.
    """
    return await _claim(
        connection, worker_id, asked, limit, _CLAIM_CALLS, _call_columns(asked), _claimed_call
    )


async def _claim(
    connection: Connection,
    worker_id: str,
    asked: Sequence[E],
    limit: int | None,
    statement: str,
    columns: Mapping[str, Any],
    claimed: Callable[[E, int, str, Any], C],
) -> ClaimResult[C]:
    cursor = await connection.execute(
        statement,
        {
            "worker_id": worker_id,
            "limit": limit,
            "effect_ids": [one.id for one in asked],
            "context_ids": [one.context_id for one in asked],
            "versions": [one.version for one in asked],
            **columns,
        },
    )
    found: list[C] = []
    looked_at: set[int] = set()
    mine: set[str] = set()
    for is_alive, place, attempt, token, *ledger in await cursor.fetchall():
        if not is_alive:
            raise rules.dead(worker_id)
        if place is None:
            break
        looked_at.add(place)
        effect = asked[place - 1]
        # The same effect may be asked for twice: a topic may hold it twice.
        if attempt is not None and effect.id not in mine:
            mine.add(effect.id)
            found.append(claimed(effect, attempt, token, tuple(ledger)))
    # Behind the last one that the limit let in nothing was looked at.
    is_full = limit is not None and len(looked_at) >= limit
    return ClaimResult(found, len(asked) - max(looked_at, default=0) if is_full else 0)


def _call_columns(asked: Sequence[effects.CallFunction]) -> dict[str, Any]:
    return {
        "requested_versions": [one.requested_version for one in asked],
        "ordinals": [one.ordinal for one in asked],
        "tool_call_ids": [one.tool_call_id for one in asked],
    }


def _claimed_call(effect: effects.CallFunction, attempt: int, token: str, ledger: Any) -> ClaimedCall:
    return rules.claimed_call(
        (
            effect.id,
            effect.context_id,
            effect.version,
            effect.requested_version,
            effect.ordinal,
            effect.tool_call_id,
        ),
        attempt,
        token,
        ledger,
    )


# One row at least comes back: it says whether the worker is alive. Rows are inserted in the order of their key, so
# that two who ask for the same at once do not wait for each other in a circle. Of a claim that is there already, two
# who see it finished reckon the same attempt: the second one finds it given out.
_TAKE_AGAIN = """
    ON CONFLICT (effect_id) DO UPDATE SET
        worker_id = excluded.worker_id, service = excluded.service, attempt = excluded.attempt, token = DEFAULT,
        taken_at = clock_timestamp(), released_at = NULL, finished_at = NULL, finish = NULL
    WHERE had.finished_at IS NOT NULL AND had.attempt < excluded.attempt
    RETURNING effect_id, attempt, token
"""

_CLAIM_RUNS = f"""
    WITH {rules.ME}, claimable AS (
        SELECT *
        FROM unnest(%(effect_ids)s::text[], %(context_ids)s::text[], %(versions)s::bigint[], %(run_ids)s::text[])
            WITH ORDINALITY AS asked (effect_id, context_id, version, run_id, place)
    ), mine AS (
        SELECT claimable.*, me.worker_id, me.service,
            greatest(had.attempt, runs.attempt) + 1 AS attempt
        FROM me
        CROSS JOIN claimable
        {rules.LIVES}
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
        {_TAKE_AGAIN}
    )
    SELECT EXISTS (SELECT FROM me), mine.place, taken.attempt, taken.token
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
            greatest(had.attempt, tool_calls.attempt) + 1 AS attempt, {rules.CALL_COLUMNS}
        FROM me
        CROSS JOIN claimable
        {rules.LIVES}
        {rules.open_call("dispatched", "running")}
        LEFT JOIN claims AS had ON had.effect_id = claimable.effect_id
        CROSS JOIN LATERAL (SELECT {rules.FUNCTION} AS name) AS function
        WHERE {rules.claimable_call("tool_calls", "had")} AND {rules.NOT_BEGUN_LATELY}
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
        {_TAKE_AGAIN}
    )
    SELECT EXISTS (SELECT FROM me), mine.place, taken.attempt, taken.token, mine.function_name, mine.arguments,
        mine.group_id, mine.run_id, mine.age_secs, mine.status, mine.safe_to_retry, mine.interrupted, mine.builtin
    FROM (VALUES (true)) AS always
    LEFT JOIN mine ON true
    LEFT JOIN taken ON taken.effect_id = mine.effect_id
    ORDER BY mine.place
"""

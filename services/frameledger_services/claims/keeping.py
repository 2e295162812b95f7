"""What a worker does with work that it has: keep it, finish it, give it back; and what is forgotten in the end."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger_services.claims import rules
from frameledger_services.claims.values import Connection, Finish


async def next_attempt(connection: Connection, worker_id: str, effect_id: str, attempt: int) -> int | None:
    """Keep work that this worker has as `attempt`, with the next one; None if it is not this worker's any more.

    If the answer is lost, asking again with the same `attempt` gives None: whoever is unsure gives the work up.
    """
    cursor = await connection.execute(
        """
        UPDATE claims SET attempt = attempt + 1, taken_at = clock_timestamp()
        WHERE effect_id = %s AND worker_id = %s AND attempt = %s AND finished_at IS NULL AND released_at IS NULL
        RETURNING attempt
        """,
        (effect_id, worker_id, attempt),
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def finish(
    connection: Connection, worker_id: str, effect_ids: Sequence[str], how: Finish = "done"
) -> None:
    """Nothing is left to do for these. Called twice it does nothing; what another worker has by now is left alone."""
    await connection.execute(
        """
        UPDATE claims SET finished_at = clock_timestamp(), finish = %s
        WHERE effect_id = ANY (%s) AND worker_id = %s AND finished_at IS NULL
        """,
        (how, list(effect_ids), worker_id),
    )


async def release(connection: Connection, worker_id: str, effect_ids: Sequence[str]) -> None:
    """Give these back: anybody may take them at once, as their next attempt."""
    await connection.execute(
        """
        UPDATE claims SET released_at = clock_timestamp()
        WHERE effect_id = ANY (%s) AND worker_id = %s AND finished_at IS NULL AND released_at IS NULL
        """,
        (list(effect_ids), worker_id),
    )


async def release_all_but(connection: Connection, worker_id: str, held: Sequence[str]) -> int:
    """Give back what this worker has and does not know of, because the answer to its claim was lost with the
    connection; how many those are. `held` is all that it knows of. To be called while no claim is under way."""
    cursor = await connection.execute(
        """
        UPDATE claims SET released_at = clock_timestamp()
        WHERE worker_id = %s AND finished_at IS NULL AND released_at IS NULL AND effect_id <> ALL (%s)
        """,
        (worker_id, list(held)),
    )
    return cursor.rowcount


async def forget(
    connection: Connection, *, claims_days: float, workers_days: float, limit: int = 10_000
) -> int:
    """Delete claims of that age that are finished, and workers that died so long ago and have nothing unfinished; how
    many claims. At most `limit` of these; call it again while it was so many."""
    cursor = await connection.execute(
        f"""
        WITH old AS (
            SELECT effect_id FROM claims
            WHERE claimed_at < clock_timestamp() - %(claims_days)s * interval '1 day' AND finished_at IS NOT NULL
            ORDER BY claimed_at
            LIMIT %(limit)s
        ), gone AS (
            DELETE FROM workers
            WHERE NOT {rules.alive("workers")}
                AND heartbeat_at < clock_timestamp() - %(workers_days)s * interval '1 day'
                AND NOT EXISTS (
                    SELECT FROM claims
                    WHERE claims.worker_id = workers.worker_id AND claims.finished_at IS NULL
                )
        )
        DELETE FROM claims USING old WHERE claims.effect_id = old.effect_id
        """,
        {"claims_days": claims_days, "workers_days": workers_days, "limit": limit},
    )
    return cursor.rowcount

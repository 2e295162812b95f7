"""Statements for a worker's claims: keep, finish and release them, and delete old ones."""

from __future__ import annotations

from collections.abc import Mapping

from frameledger_services.claims import rules
from frameledger_services.claims.values import Finish
from frameledger_services.database_types import Connection

_OF_ITS_RUN = """
    (SELECT runs.attempt FROM runs WHERE runs.context_id = claims.context_id AND runs.run_id = claims.run_id)
"""


async def next_attempt(
    connection: Connection, worker_id: str, effect_id: str, token: str, attempt: int
) -> int | None:
    """Keep the claim of a run that this worker has as `attempt`, with the next attempt number. Returns that number, or
    None if the claim is lost.

    Called again with the same `attempt`, because the answer was lost, it returns None: the worker cannot know whether
    it has the claim, and gives the work up.
    """
    cursor = await connection.execute(
        f"""
        UPDATE claims SET taken_at = clock_timestamp(), attempt = {rules.attempt_after("attempt", _OF_ITS_RUN)}
        WHERE effect_id = %s AND worker_id = %s AND token = %s AND attempt = %s
            AND finished_at IS NULL AND released_at IS NULL
        RETURNING attempt
        """,
        (effect_id, worker_id, token, attempt),
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def finish(
    connection: Connection, worker_id: str, held: Mapping[str, str], how: Finish = "done"
) -> None:
    """Finish these claims, each an effect with the token of its claim. A second call does nothing; effects that have
    another claim by now do not change."""
    await connection.execute(
        """
        UPDATE claims SET finished_at = clock_timestamp(), finish = %s
        FROM unnest(%s::text[], %s::text[]) AS held (effect_id, token)
        WHERE claims.effect_id = held.effect_id AND claims.token = held.token AND worker_id = %s
            AND finished_at IS NULL
        """,
        (how, list(held), list(held.values()), worker_id),
    )


async def release(
    connection: Connection, worker_id: str, held: Mapping[str, str], *, untried: bool = False
) -> None:
    """Release these claims, each an effect with its token: any worker may take the work at once, as the next attempt.

    `untried` means that nothing of this attempt was published. It then does not count: the next worker gets the same
    number, with another token.
    """
    await connection.execute(
        """
        UPDATE claims SET released_at = clock_timestamp(), attempt = attempt - %s
        FROM unnest(%s::text[], %s::text[]) AS held (effect_id, token)
        WHERE claims.effect_id = held.effect_id AND claims.token = held.token AND worker_id = %s
            AND finished_at IS NULL AND released_at IS NULL
        """,
        (int(untried), list(held), list(held.values()), worker_id),
    )


async def release_all_but(
    connection: Connection, worker_id: str, held: Mapping[str, str], *, older_than_secs: float = 0.0
) -> int:
    """Release this worker's claims that are at least this old and not in `held`, which are all claims that it knows,
    each an effect with the token of its claim. Returns the number of released claims.

    The worker does not know a claim whose answer was lost with the connection, or that the database shows in an earlier
    state because it lost its latest commits. Call this only while no claim is in progress.
    """
    cursor = await connection.execute(
        """
        UPDATE claims SET released_at = clock_timestamp()
        WHERE worker_id = %s AND finished_at IS NULL AND released_at IS NULL
            AND taken_at <= clock_timestamp() - %s * interval '1 second'
            AND NOT EXISTS (
                SELECT FROM unnest(%s::text[], %s::text[]) AS held (effect_id, token)
                WHERE held.effect_id = claims.effect_id AND held.token = claims.token
            )
        """,
        (worker_id, older_than_secs, list(held), list(held.values())),
    )
    return cursor.rowcount


async def purge(
    connection: Connection, *, claims_days: float, workers_days: float, limit: int = 10_000
) -> int:
    """Delete finished claims of this age, at most `limit`, and workers that died this long ago and hold no claim.
    Returns the number of deleted claims; call it again if that is `limit`."""
    cursor = await connection.execute(
        f"""
        WITH old AS (
            SELECT effect_id FROM claims
            -- Not clock_timestamp(): no index finds what a volatile function returns.
            WHERE claimed_at < now() - %(claims_days)s * interval '1 day' AND finished_at IS NOT NULL
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

"""Workers: they register, send heartbeats, and deregister.

A worker is one session of one process. It is alive while it has not stopped and its last heartbeat is younger than its
lease, by the database's clock. A dead worker never becomes alive again.

That clock may be set back, or a standby with another clock be promoted. Then heartbeats, and the times from which
workers count their connection, are in the future, and nobody would be declared dead until that time. A worker corrects
its own times with its next heartbeat; `reap_workers` corrects those of workers that send none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Json

from frameledger_services.claims import rules
from frameledger_services.claims.values import Heartbeat, Registration
from frameledger_services.database_types import Connection

LONG_DEAD_SECONDS = 3_600.0


async def register(connection: Connection, offer: Registration) -> None:
    """Insert a worker, alive and connected from now on. Its id must be new."""
    await connection.execute(
        """
        INSERT INTO workers
            (worker_id, service, kind, host, pid, lease_secs, slots, serves, serves_all, offers)
        VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
        """,
        (
            offer.worker_id,
            offer.service,
            offer.kind,
            offer.host,
            offer.pid,
            offer.lease_secs,
            offer.slots,
            list(offer.serves),
            offer.serves_all,
            Json(dict(offer.offers)),
        ),
    )


async def update_registration(connection: Connection, offer: Registration) -> None:
    """Change what the worker serves. It applies to later claims."""
    await connection.execute(
        "UPDATE workers SET serves = %s, serves_all = %s, offers = %s, slots = %s WHERE worker_id = %s",
        (list(offer.serves), offer.serves_all, Json(dict(offer.offers)), offer.slots, offer.worker_id),
    )


async def reconnected(connection: Connection, worker_id: str) -> None:
    """Record that the worker was without the database for a while. Others may have been too, so it declares none of
    them dead for a whole lease."""
    await connection.execute(
        "UPDATE workers SET connected_at = clock_timestamp() WHERE worker_id = %s", (worker_id,)
    )


async def heartbeat(connection: Connection, worker_id: str, held: Mapping[str, str]) -> Heartbeat:
    """Renew the worker's lease. `held` are the effects that it works on, each with the token of its claim. Returns
    whether it is alive, and which of them it has to stop."""
    cursor = await connection.execute(
        _HEARTBEAT, {"worker_id": worker_id, "held": list(held), "tokens": list(held.values())}
    )
    row = await cursor.fetchone()
    assert row is not None
    return Heartbeat(alive=row[0], obsolete=frozenset(row[1] or ()), lost=frozenset(row[2] or ()))


async def may_judge(connection: Connection, worker_id: str) -> bool:
    """Returns whether this worker has been connected for a whole lease. Before that, other workers may only seem
    dead."""
    cursor = await connection.execute(
        "SELECT connected_at < now() - make_interval(secs => lease_secs) FROM workers WHERE worker_id = %s",
        (worker_id,),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def registered_offers(connection: Connection, worker_id: str) -> dict[str, Any] | None:
    """Returns the offers of a worker, alive or not, as last registered; None if its row is gone."""
    cursor = await connection.execute("SELECT offers FROM workers WHERE worker_id = %s", (worker_id,))
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def leave(connection: Connection, worker_id: str) -> None:
    """Deregister the worker. The claims that it still holds may be taken over at once."""
    await connection.execute(
        "UPDATE workers SET stopped_at = clock_timestamp() WHERE worker_id = %s AND stopped_at IS NULL",
        (worker_id,),
    )


async def reap_workers(connection: Connection) -> None:
    """Mark workers that died `LONG_DEAD_SECONDS` ago as stopped. They were dead before; this reduces the rows that are
    searched for live workers. A heartbeat in the future, from a clock that was set back, counts as one of now."""
    await connection.execute(
        """
        UPDATE workers SET heartbeat_at = clock_timestamp()
        WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp()
        """
    )
    await connection.execute(
        f"""
        UPDATE workers SET stopped_at = heartbeat_at
        WHERE stopped_at IS NULL AND NOT {rules.alive("workers")}
            AND heartbeat_at < clock_timestamp() - %s * interval '1 second'
        """,
        (LONG_DEAD_SECONDS,),
    )


# A call that must be cancelled is stopped by its worker, which publishes its outcome. One that waits for a person is
# not obsolete: its worker may be about to end the job. Work that another worker started last, under the same attempt or
# a later one, counts as lost: once released it is claimed with the next attempt.
_HEARTBEAT = f"""
    WITH beat AS (
        UPDATE workers SET heartbeat_at = clock_timestamp(), connected_at = least(connected_at, clock_timestamp())
        WHERE worker_id = %(worker_id)s AND {rules.alive("workers")}
        RETURNING worker_id
    ), held AS (
        SELECT asked.effect_id,
            coalesce(
                claims.worker_id = %(worker_id)s AND claims.token = asked.token
                    AND claims.finished_at IS NULL AND claims.released_at IS NULL
                    AND (work.open AND work.started_by_another) IS NOT TRUE,
                false
            ) AS ours,
            coalesce(work.open, false) AS open
        FROM unnest(%(held)s::text[], %(tokens)s::text[]) AS asked (effect_id, token)
        LEFT JOIN claims ON claims.effect_id = asked.effect_id
        LEFT JOIN LATERAL (
            SELECT runs.status = 'open' AS open, {rules.started_by_another("runs", "claims")} AS started_by_another
            FROM runs
            WHERE claims.kind = 'run' AND runs.context_id = claims.context_id AND runs.run_id = claims.run_id
            UNION ALL
            SELECT status IN ('dispatched', 'running', 'waiting') AND interrupted_version IS NULL,
                {rules.started_by_another("tool_calls", "claims")}
            FROM tool_calls
            WHERE claims.kind = 'call' AND tool_calls.context_id = claims.context_id
                AND tool_calls.requested_version = claims.requested_version
                AND tool_calls.ordinal = claims.ordinal
        ) AS work ON true
    )
    SELECT EXISTS (SELECT FROM beat),
        (SELECT array_agg(effect_id) FROM held WHERE ours AND NOT open),
        (SELECT array_agg(effect_id) FROM held WHERE NOT ours)
"""

"""Calls that are overdue: past a deadline, or without the worker that started them. `store.overdue` describes what all
rules share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from frameledger_services.claims import rules
from frameledger_services.database_types import Connection
from frameledger_services.store.client_calls import BY_CLIENT
from frameledger_services.store.overdue import JUDGED, MAX_ROWS, WINDOW, ago, rows

NEVER_SECONDS = 1e10
"""Longer deadlines are reduced to this, some 300 years. A client may send one that PostgreSQL cannot subtract from a
time: the statement would fail, and with it the timekeeper, for all conversations."""

CallStatus = Literal["announced", "dispatched", "running", "waiting"]


@dataclass(frozen=True, slots=True)
class OverdueCall:
    """A call that has not ended in time. `version` is that of the context.

    `safe`: it may run twice; False before it starts, when that is not known. `interrupted`: an interruption requested
    its cancellation, so its end requests no run. `causation_id`: the frame that started it, or else the one that
    dispatched or announced it.
    """

    context_id: str
    version: int
    requested_version: int
    tool_call_id: str
    function_name: str
    status: CallStatus
    safe: bool
    interrupted: bool
    causation_id: UUID


async def past_deadline(
    connection: Connection, limit: float, grace: float, current: Sequence[int]
) -> list[OverdueCall]:
    """Returns calls that do not wait for a person and whose deadline passed `grace` seconds ago. `limit` is the
    deadline of calls that have none, in seconds.

    The deadline counts from the dispatch, or from the start of a call that was started without a dispatch. For a call
    that was not started either, because it waits in its context's queue, it counts from the time at which the last
    other call settled: while one runs, there is a worker that continues with the queue. Calls of an open run are not
    committed, and end with it.
    """
    return await rows(
        connection,
        OverdueCall,
        _select(
            known_at="call.requested_version",
            joins="LEFT JOIN runs AS run ON run.context_id = call.context_id AND run.run_id = call.run_id",
            # Nothing is dispatched before it is announced, and there is an index on this.
            where=f"""
                call.status IN ('announced', 'dispatched', 'running') AND call.requested_at < {ago("grace")}
                AND CASE call.status
                    WHEN 'announced' THEN call.requested_at < {_overdue_since()} AND call.context_id IN ({_IDLE_QUEUES})
                    ELSE coalesce(call.dispatched_at, call.started_at, call.requested_at)
                        < {_overdue_since("coalesce(call.timeout_secs, %(limit)s)")}
                END
                AND NOT (call.status = 'announced' AND run.status IS NOT DISTINCT FROM 'open')
            """,
        ),
        limit=limit,
        grace=grace,
        current=list(current),
    )


async def waiting(connection: Connection, grace: float, current: Sequence[int]) -> list[OverdueCall]:
    """Returns calls that wait for a person and whose own deadline passed `grace` seconds ago."""
    return await rows(
        connection,
        OverdueCall,
        _select(
            known_at="call.requested_version",
            where=f"call.status = 'waiting' AND call.waiting_deadline < {ago('grace')}",
            order="call.waiting_deadline",
        ),
        grace=grace,
        current=list(current),
    )


async def left_by_clients(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueCall]:
    """Returns calls that wait for the client that declared their function, in conversations without a new frame for
    `limit` seconds: that client is not expected to return."""
    return await rows(
        connection,
        OverdueCall,
        _select(
            known_at="head.version",
            # The index of waiting calls finds those without a deadline. `requested_at` only narrows the search: the
            # newest frame is never older than the request.
            where=f"""
                call.status = 'waiting' AND call.waiting_deadline IS NULL AND {BY_CLIENT}
                AND call.requested_at < {ago("limit")} AND known.recorded_at < {ago("limit")}
            """,
        ),
        limit=limit,
        current=list(current),
    )


async def abandoned(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueCall]:
    """Returns interrupted calls that still run, and that no live worker had in the last `limit` seconds to settle them.

    Only calls that a worker started: others are run by programs that are not in the tables.
    """
    return await rows(
        connection,
        OverdueCall,
        _select(
            known_at="call.interrupted_version",
            joins=rules.HOLDER,
            where=f"""
                call.status = 'running' AND call.interrupted_version IS NOT NULL
                AND {rules.HAS_NO_WORKER} AND greatest(known.recorded_at, {_HAD_ONE_AT}) < {ago("limit")}
            """,
        ),
        limit=limit,
        current=list(current),
    )


async def lost(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueCall]:
    """Returns calls that a worker started, that must not run again, and that no live worker had in the last `limit`
    seconds: it died, or the database lost its claim. A worker that serves the function settles them first.

    A call that is safe to retry is run again by another worker, unless it was started without a claim. Only calls that
    a worker started, as above.
    """
    return await rows(
        connection,
        OverdueCall,
        _select(
            known_at="call.started_version",
            joins=rules.HOLDER,
            where=f"""
                call.status = 'running' AND call.interrupted_version IS NULL
                AND (call.safe_to_retry IS NOT TRUE OR {rules.STARTED_WITHOUT_CLAIM})
                AND starter.kind IS DISTINCT FROM 'timekeeper'
                AND {rules.HAS_NO_WORKER} AND greatest(known.recorded_at, {_HAD_ONE_AT}) < {ago("limit")}
            """,
        ),
        limit=limit,
        current=list(current),
    )


async def queued_at_lost(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueCall]:
    """Returns calls that wait in the queue of a program that has been dead for `limit` seconds: without a claim, only
    the worker that began another call of the same announcement starts a call.

    If no call of an announcement had begun, the worker is not in the tables: those calls end at their deadlines.
    """
    return await rows(
        connection,
        OverdueCall,
        _select(
            known_at="call.requested_version",
            where=f"""
                call.status = 'announced' AND call.run_id IS NULL AND call.requested_at < {ago("limit")}
                -- Not as a join: it is read once, and not for each call.
                AND ((call.context_id, call.requested_version) IN ({_LEFT_ANNOUNCEMENTS})) IS TRUE
            """,
        ),
        limit=limit,
        current=list(current),
    )


_LEFT_ANNOUNCEMENTS = f"""
    SELECT queued.context_id, queued.requested_version
    FROM (
        SELECT DISTINCT context_id, requested_version FROM tool_calls
        WHERE status = 'announced' AND run_id IS NULL AND requested_at < {ago("limit")}
    ) AS queued
    WHERE EXISTS (
        SELECT
        FROM tool_calls AS begun
        JOIN workers AS gone ON gone.worker_id = begun.worker COLLATE "C"
        WHERE begun.context_id = queued.context_id AND begun.requested_version = queued.requested_version
            AND begun.attempt = 0 AND NOT {rules.alive("gone")} AND gone.heartbeat_at < {ago("limit")}
    )
"""
"""The announcements with a call that was begun by a program that has been dead for `limit` seconds."""


_HAD_ONE_AT = f"""
    claim.released_at, claim.finished_at, holder.heartbeat_at,
    CASE WHEN {rules.STARTED_WITHOUT_CLAIM} THEN starter.heartbeat_at END
"""
"""The last time at which a live worker had it: the latest of these. NULLs do not count."""


def _overdue_since(timeout: str = "%(limit)s") -> str:
    """SQL: work that began before this time, with this timeout, is past its deadline and the grace after it."""
    return f"{ago('grace')} - make_interval(secs => least(greatest({timeout}, 0), {NEVER_SECONDS}))"


# Read once for all calls: searching a long queue for each of its calls would take quadratic time.
_IDLE_QUEUES = f"""
    SELECT queued.context_id
    FROM (
        SELECT DISTINCT context_id FROM tool_calls
        WHERE status = 'announced' AND requested_at < {_overdue_since()}
    ) AS queued
    JOIN contexts AS head ON head.context_id = queued.context_id
    WHERE NOT EXISTS (
        SELECT FROM tool_calls AS other
        WHERE other.context_id = head.context_id AND other.requested_version > head.version - {WINDOW}
            AND (other.status IN ('dispatched', 'running') OR other.settled_at >= {_overdue_since()})
    )
"""
"""The contexts whose queued calls have no other call before them: none is in progress, nor was one within a timeout."""


_BEGAN = "coalesce(call.started_version, call.dispatched_version, call.requested_version)"


def _select(*, known_at: str, where: str, joins: str = "", order: str = "call.requested_at") -> str:
    """Returns a query for calls. `known` is the frame of the version `known_at`, which brought them into this state or
    was the last one received.

    A call that a timekeeper started nominally was not executed, and so is safe to run again.
    """
    return f"""
        SELECT call.context_id, head.version, call.requested_version, call.tool_call_id, call.function_name,
            call.status, coalesce(call.safe_to_retry, false) OR starter.kind IS NOT DISTINCT FROM 'timekeeper' AS safe,
            call.interrupted_version IS NOT NULL AS interrupted,
            {rules.frame_id_at(_BEGAN, of="call")} AS causation_id
        FROM tool_calls AS call
        JOIN contexts AS head ON head.context_id = call.context_id
        JOIN frames AS known ON known.context_id = call.context_id AND known.version = {known_at}
        {rules.STARTER}
        {joins}
        WHERE {where} AND {JUDGED} AND known.partition = ANY (%(current)s)
        ORDER BY {order}
        LIMIT {MAX_ROWS}
    """

"""Calls that need a person's attention: no worker has them any more, they wait for a person, or they are ambiguous.

For the report to an operator; nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from psycopg.rows import class_row

from frameledger_services.claims import rules
from frameledger_services.database_types import Connection
from frameledger_services.store.client_calls import WAITS_FOR_PERSON

AFTER_SECONDS = 5.0
"""Seconds without a worker after which a call counts as lost. Before that, a worker may be taking it over."""

Reason = Literal["lost", "waiting", "ambiguous"]


@dataclass(frozen=True, slots=True)
class NeedsAttention:
    """The calls that need attention for one reason, and the oldest of them.

    `lost`: started by a worker in the tables, and no live worker has it. `waiting`: for a person. `ambiguous`: a person
    has to decide whether it was executed.
    """

    why: Reason
    count: int
    oldest_secs: float
    context_id: str
    tool_call_id: str


async def calls_needing_attention(connection: Connection) -> list[NeedsAttention]:
    """Returns one row for each reason for which there are calls, in contexts that are neither parked nor recordings."""
    async with connection.cursor(row_factory=class_row(NeedsAttention)) as cursor:
        await cursor.execute(_LEFT, {"after_secs": AFTER_SECONDS})
        return await cursor.fetchall()


_LEFT = f"""
    WITH claimable AS (
        SELECT 'lost' AS why, call.context_id, call.tool_call_id, call.started_at AS since
        FROM tool_calls AS call
        {rules.HOLDER}
        {rules.STARTER}
        WHERE call.status = 'running' AND {rules.HAS_NO_WORKER}
            AND call.started_at < now() - make_interval(secs => %(after_secs)s)
        UNION ALL
        SELECT 'waiting', context_id, tool_call_id, coalesce(started_at, requested_at)
        FROM tool_calls
        WHERE {WAITS_FOR_PERSON}
        UNION ALL
        SELECT 'ambiguous', context_id, tool_call_id, settled_at
        FROM tool_calls
        WHERE status = 'ambiguous' AND resolved_version IS NULL
    )
    SELECT DISTINCT ON (why) why, count(*) OVER of_kind AS count,
        extract(epoch FROM clock_timestamp() - claimable.since)::float8 AS oldest_secs, claimable.context_id,
        tool_call_id
    FROM claimable
    {rules.ACTIVE_CONTEXT}
    WINDOW of_kind AS (PARTITION BY why)
    ORDER BY why, claimable.since
"""

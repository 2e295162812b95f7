"""Function calls, as the tables have them: those of an announcement, those of an interruption, and unsettled ones.

Each function runs one statement on the caller's connection and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from psycopg.rows import class_row

from frameledger.frames import FunctionCallFromLLM, FunctionCallResultFrame
from frameledger_services.database_types import Connection
from frameledger_services.store.client_calls import BY_CLIENT, WAITS_FOR_CLIENT
from frameledger_services.store.contexts import loads

CallKey = tuple[int, int]
"""A call in its context: the version that announced it, and its ordinal there."""

SETTLES_ALL_THE_SAME = frozenset(("place_replaced", "context_full"))
"""The reason of an ignored result that settles its call nevertheless: it is recorded, and the history has no capacity
for it."""

NOT_SETTLED = frozenset({"announced", "dispatched", "running"})
"""The statuses of calls that end without a person or a client."""


@dataclass(frozen=True, slots=True)
class CancellableCall:
    """An asynchronous call that is in progress or waits."""

    tool_call_id: str
    requested_version: int
    arguments: Any


async def announced_at(connection: Connection, context_id: str, version: int) -> list[FunctionCallFromLLM]:
    """Returns the calls that the frame at this version announced, without those of built-in tools."""
    cursor = await connection.execute(
        """
        SELECT function_name, tool_call_id, arguments::text
        FROM tool_calls
        WHERE context_id = %s AND requested_version = %s AND NOT builtin
        ORDER BY ordinal
        """,
        (context_id, version),
    )
    return [
        FunctionCallFromLLM(function_name=name, tool_call_id=tool_call_id, arguments=loads(arguments))
        for name, tool_call_id, arguments in await cursor.fetchall()
    ]


async def interrupted_by(connection: Connection, context_id: str, version: int) -> set[CallKey]:
    """Returns the calls that the frame at this version interrupted and that are not settled."""
    cursor = await connection.execute(
        "SELECT requested_version, ordinal FROM tool_calls "
        "WHERE context_id = %s AND interrupted_version = %s AND status IN ('running', 'waiting')",
        (context_id, version),
    )
    return {(requested_version, ordinal) for requested_version, ordinal in await cursor.fetchall()}


async def running_async(connection: Connection, context_id: str, function_name: str) -> list[CancellableCall]:
    """Returns the asynchronous calls of a function that are in progress or wait, oldest first."""
    cursor = await connection.execute(
        """
        SELECT tool_call_id, requested_version, arguments::text
        FROM tool_calls
        WHERE context_id = %s AND function_name = %s AND status IN ('running', 'waiting') AND synchronous = false
        ORDER BY requested_version, ordinal
        """,
        (context_id, function_name),
    )
    return [CancellableCall(call, version, loads(text)) for call, version, text in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class StoredFrameOfCall:
    """The call that a stored frame names, and the frame's outcome."""

    tool_call_id: str
    outcome: str


async def call_of_frame(connection: Connection, context_id: str, frame_id: str) -> StoredFrameOfCall | None:
    """Returns the call that a frame names; None if the frame is not stored."""
    cursor = await connection.execute(
        "SELECT tool_call_id, outcome FROM frames WHERE context_id = %s AND frame_id = %s::uuid",
        (context_id, frame_id),
    )
    row = await cursor.fetchone()
    return None if row is None else StoredFrameOfCall(*row)


@dataclass(frozen=True, slots=True)
class UnsettledCall:
    """A call that is not settled, or is ambiguous and not resolved."""

    context_id: str
    tool_call_id: str
    function_name: str
    status: str
    since: datetime
    worker: str | None
    waiting_for: str | None
    waiting_deadline: datetime | None
    requested_version: int
    ordinal: int
    by_client: bool
    """Whether a client answers it, so that no person needs to."""


async def unsettled(
    connection: Connection,
    context_id: str | None,
    *,
    status: str | None = None,
    prefix: str = "",
) -> list[UnsettledCall]:
    """Returns the unsettled calls of one conversation or of all, the oldest first, at most a thousand; with `status`
    those of that status, in conversations whose ids begin with `prefix`. Calls that wait for their client come last, so
    that clients that never return do not displace what needs a person."""
    async with connection.cursor(row_factory=class_row(UnsettledCall)) as cursor:
        await cursor.execute(
            f"""
            SELECT
                context_id, tool_call_id, function_name, status,
                coalesce(settled_at, started_at, dispatched_at, requested_at) AS since,
                worker, waiting_for, waiting_deadline, requested_version, ordinal, {BY_CLIENT} AS by_client
            FROM tool_calls
            WHERE (
                    status IN ('announced', 'dispatched', 'running') OR status = 'waiting'
                    OR status = 'ambiguous' AND resolved_version IS NULL
                )
                AND (%(context)s::text IS NULL OR context_id = %(context)s)
                AND (%(status)s::text IS NULL OR status = %(status)s) AND starts_with(context_id, %(prefix)s)
            ORDER BY {WAITS_FOR_CLIENT}, requested_at, context_id, requested_version, ordinal
            LIMIT 1000
            """,
            {"context": context_id, "status": status, "prefix": prefix},
        )
        return await cursor.fetchall()


async def status_of(connection: Connection, context_id: str, tool_call_id: str) -> str | None:
    """Returns the status of the newest call of this id: one of `tool_calls.status`, or `resolved` for an ambiguous call
    whose result was recorded. None if there is no such call."""
    cursor = await connection.execute(
        """
        SELECT CASE WHEN resolved_version IS NULL THEN status ELSE 'resolved' END
        FROM tool_calls
        WHERE context_id = %s AND tool_call_id = %s
        ORDER BY requested_version DESC
        LIMIT 1
        """,
        (context_id, tool_call_id),
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0])


SettleableStatus = Literal["waiting", "ambiguous"]
"""Statuses of calls that a user may settle: a waiting call is answered, an ambiguous one is resolved."""


class Settleable(NamedTuple):
    """A call that a user may settle."""

    tool_call_id: str
    status: SettleableStatus
    function_name: str
    requested_version: int
    cause: UUID | None
    """The frame that started it, or that settled it as ambiguous: the cause of an answer."""

    trace_id: str | None
    """The trace of that frame."""

    def settled_with(self, result: Any, frame_id: str | None = None) -> FunctionCallResultFrame:
        """Returns the frame with the result that settles it."""
        return FunctionCallResultFrame(
            id=frame_id,
            function_name=self.function_name,
            tool_call_id=self.tool_call_id,
            result=result,
            settled_as="resolved" if self.status == "ambiguous" else None,
            opened_version=self.requested_version,
        )


async def with_status(
    connection: Connection,
    context_id: str,
    tool_call_id: str,
    status: SettleableStatus,
    requested_version: int | None = None,
) -> Settleable | None:
    """Returns the newest unresolved call of this id and status; with `requested_version` only the call that was
    announced there. None if there is no such call."""
    cursor = await connection.execute(
        """
        SELECT call.tool_call_id, call.status, call.function_name, call.requested_version, cause.frame_id,
            cause.trace_id
        FROM tool_calls AS call
        LEFT JOIN frames AS cause
            ON cause.context_id = call.context_id
                AND cause.version = coalesce(call.settled_version, call.started_version)
        WHERE call.context_id = %(context_id)s AND call.tool_call_id = %(call)s AND call.status = %(status)s
            AND call.resolved_version IS NULL
            AND (%(version)s::bigint IS NULL OR call.requested_version = %(version)s)
        ORDER BY call.requested_version DESC
        LIMIT 1
        """,
        {"context_id": context_id, "call": tool_call_id, "status": status, "version": requested_version},
    )
    row = await cursor.fetchone()
    return None if row is None else Settleable(*row)

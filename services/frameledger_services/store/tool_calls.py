"""Calls of functions, as the tables have them: one, those of an announcement, of an interruption, and unsettled ones.

Each function runs one statement on the caller's connection and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import class_row

from frameledger.frames import FunctionCallFromLLM
from frameledger_services.database_types import Connection
from frameledger_services.store.client_calls import BY_CLIENT, WAITS_FOR_CLIENT
from frameledger_services.store.contexts import loads

CallKey = tuple[int, int]
"""A call in its context: the version that announced it, and its ordinal there."""

SETTLES_ALL_THE_SAME = frozenset(("place_replaced", "context_full"))
"""Why a result is ignored that settles its call nevertheless: it is recorded, and the history has no place for it."""

NOT_SETTLED = frozenset({"announced", "dispatched", "running"})
"""The statuses of calls that end without a person or a client."""

_OPEN = NOT_SETTLED | {"waiting"}


class FrameOfCall(NamedTuple):
    """A frame, and the call beside which it is read, if any."""

    context_id: str
    frame_id: str
    call: CallKey | None


class Interruption(NamedTuple):
    """The frame that interrupted a call."""

    version: int
    frame_id: UUID | None


@dataclass(frozen=True, slots=True)
class CallSnapshot:
    """A frame and its call at one moment: whether the frame was folded, and how the call stands."""

    asked_at: float
    """When the read was sent, by `monotonic`: nothing in it is older."""

    version: int | None = None
    """Of the frame; None while it is not stored."""

    outcome: str | None = None
    """Of the frame."""

    status: str | None = None
    """Of the call; None if it is not in the tables."""

    worker: str | None = None
    attempt: int | None = None
    safe_to_retry: bool | None = None
    interrupted_version: int | None = None
    claim: str | None = None
    """The token that the latest start of the call names."""

    by_timekeeper: bool = False
    """Whether the timekeeper started the call, to settle it: nothing ran."""

    interrupted_by: UUID | None = None

    reason: str | None = None
    """Why the frame was ignored."""

    erased: bool = False
    """Whether the call is not in the tables because its conversation was erased since."""

    @property
    def interruption(self) -> Interruption | None:
        """The frame that asked for the cancellation of the call."""
        version = self.interrupted_version
        return None if version is None else Interruption(version, self.interrupted_by)

    @property
    def folded(self) -> bool:
        """Whether the frame's outcome is final. A parked frame is folded once its conversation is unparked."""
        return self.outcome is not None and self.outcome != "parked"

    @property
    def is_open(self) -> bool:
        """Whether the call may still be settled."""
        return self.status in _OPEN

    @property
    def is_left_alone(self) -> bool:
        """Whether a worker that takes the call over has nothing to do: it is settled, was erased, or waits to be
        answered. One that was interrupted has to be cancelled."""
        if self.status is None:
            return self.erased
        return not self.is_open or (self.status == "waiting" and self.interrupted_version is None)

    @property
    def is_over(self) -> bool:
        """Whether the call is settled, or was interrupted or erased."""
        if self.status is None:
            return self.erased
        return not self.is_open or self.interrupted_version is not None


@dataclass(frozen=True, slots=True)
class CancellableCall:
    """An asynchronous call that is in progress or waits."""

    tool_call_id: str
    requested_version: int
    arguments: Any


async def snapshots(connection: Connection, questions: Sequence[FrameOfCall]) -> list[CallSnapshot]:
    """Returns the status of each of these frames with its call, in their order, all of one moment."""
    asked_at = monotonic()
    cursor = await connection.execute(
        """
        SELECT
            stored.version, stored.outcome,
            call.status, call.worker, call.attempt, call.safe_to_retry, call.interrupted_version, call.claim,
            EXISTS (SELECT FROM workers WHERE workers.worker_id = call.worker AND workers.kind = 'timekeeper'),
            interruption.frame_id, stored.reason,
            call.context_id IS NULL AND EXISTS (
                SELECT FROM erasures
                WHERE erasures.context_id = asked.context_id AND erasures.version >= asked.requested_version
            )
        FROM unnest(%s::text[], %s::uuid[], %s::bigint[], %s::integer[])
            WITH ORDINALITY AS asked (context_id, frame_id, requested_version, ordinal, place)
        LEFT JOIN frames AS stored
            ON stored.context_id = asked.context_id AND stored.frame_id = asked.frame_id
        LEFT JOIN tool_calls AS call
            ON call.context_id = asked.context_id AND call.requested_version = asked.requested_version
            AND call.ordinal = asked.ordinal
        LEFT JOIN frames AS interruption
            ON interruption.context_id = call.context_id AND interruption.version = call.interrupted_version
        ORDER BY asked.place
        """,
        (
            [one.context_id for one in questions],
            [one.frame_id for one in questions],
            [one.call and one.call[0] for one in questions],
            [one.call and one.call[1] for one in questions],
        ),
    )
    return [CallSnapshot(asked_at, *row) for row in await cursor.fetchall()]


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
    """Which call a stored frame names, and what became of the frame."""

    tool_call_id: str
    outcome: str


async def call_of_frame(connection: Connection, context_id: str, frame_id: str) -> StoredFrameOfCall | None:
    """Returns which call a frame names; None if it is not stored."""
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
    """A client answers it, and no person needs to."""


async def unsettled(
    connection: Connection,
    context_id: str | None,
    *,
    status: str | None = None,
    prefix: str = "",
) -> list[UnsettledCall]:
    """Returns those of one conversation or of all, the oldest first, a thousand at most; with `status` those that have
    it, and of conversations whose ids begin with `prefix`. Those that wait for their client come last: clients that
    never come back shall not take the places of what needs a person."""
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


class Settleable(NamedTuple):
    """A call that somebody may settle."""

    function_name: str
    requested_version: int
    cause: UUID | None
    """The frame that started it, or the one that settled it as ambiguous: what an answer answers."""

    trace_id: str | None
    """The trace of that frame."""


async def with_status(
    connection: Connection,
    context_id: str,
    tool_call_id: str,
    status: str,
    requested_version: int | None = None,
) -> Settleable | None:
    """Returns the newest unresolved call of this id and status. With `requested_version` it is the call that was
    announced there, and no other one of the id. None if there is no such call."""
    cursor = await connection.execute(
        """
        SELECT call.function_name, call.requested_version, cause.frame_id, cause.trace_id
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

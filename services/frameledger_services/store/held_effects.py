"""The statements of `projector.held_effects`: effects of a partition that catches up.

Each function runs one, in the caller's transaction if it has one, and none commits. Open work is found by its partial
indexes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.rows import class_row

from frameledger import derived
from frameledger.effects import CallFunction, RunInference
from frameledger.ids import ContextId, GroupId, RunId, ToolCallId, Version
from frameledger_services.store.projections import PROJECTION

Connection = AsyncConnection[Any]


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that is open and unclaimed. `frame_id`, `offset` and `generation` are those of the frame that opened it;
    `is_sent` if the effects of that frame are in the outbox."""

    context_id: str
    version: int
    run_id: str
    frame_id: UUID
    generation: int
    offset: int
    is_sent: bool

    @property
    def effect(self) -> RunInference:
        context_id, version, run_id = ContextId(self.context_id), Version(self.version), RunId(self.run_id)
        effect_id = derived.effect_id(RunInference.effect, context_id, version, run_id)
        return RunInference(effect_id, context_id, version, run_id, self.frame_id)


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that is dispatched and unclaimed; the rest as for a run."""

    context_id: str
    version: int
    requested_version: int
    ordinal: int
    tool_call_id: str
    function_name: str
    group_id: str | None
    frame_id: UUID
    generation: int
    offset: int
    is_sent: bool

    @property
    def effect(self) -> CallFunction:
        context_id, version, call_id = (
            ContextId(self.context_id),
            Version(self.version),
            ToolCallId(self.tool_call_id),
        )
        return CallFunction(
            derived.effect_id(CallFunction.effect, context_id, version, call_id),
            context_id,
            version,
            Version(self.requested_version),
            self.ordinal,
            call_id,
            self.function_name,
            None if self.group_id is None else GroupId(self.group_id),
            self.frame_id,
        )


async def hold(connection: Connection, topic: str, partition: int, epoch: int, until: int | None) -> None:
    """Hold the effects of a partition until this offset is reached, instead of one that was set before, which the log
    may have lost. None releases them. Does nothing if another projector owns the partition by now."""
    await connection.execute(
        f"UPDATE projections SET effects_held_until = %s {_OURS}",
        (until, PROJECTION, topic, partition, epoch),
    )


async def reach(
    connection: Connection, topic: str, partition: int, epoch: int, next_offset: int
) -> datetime | None:
    """Lock a partition that is stored up to `next_offset`. Returns the database's time; None if another projector owns
    it by now."""
    cursor = await connection.execute(
        f"""
        SELECT clock_timestamp() FROM projections {_OURS} AND next_offset = %s
        FOR NO KEY UPDATE
        """,
        (PROJECTION, topic, partition, epoch, next_offset),
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


_OURS = "WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND partition = %s AND epoch = %s"


async def open_runs(
    connection: Connection, topic: str, partition: int, than: datetime, *, old: bool
) -> list[OpenRun]:
    """Returns the open and unclaimed runs of a partition, by their places: those that were opened before a time,
    `AT_ONCE` at most, or all others."""
    async with connection.cursor(row_factory=class_row(OpenRun)) as cursor:
        await cursor.execute(_RUNS, _parameters(topic, partition, than, old))
        return await cursor.fetchall()


async def open_calls(
    connection: Connection, topic: str, partition: int, than: datetime, *, old: bool
) -> list[OpenCall]:
    """The same for dispatched calls."""
    async with connection.cursor(row_factory=class_row(OpenCall)) as cursor:
        await cursor.execute(_CALLS, _parameters(topic, partition, than, old))
        return await cursor.fetchall()


async def open_work_of(
    connection: Connection, topic: str, context_id: str, than: datetime, *, old: bool
) -> list[OpenRun | OpenCall]:
    """Returns the open and unclaimed work of one conversation, by its places: what was asked for before a time, or all
    other."""
    parameters = {"topic": topic, "context_id": context_id, "than": than, "old": old, "limit": None}
    async with connection.cursor(row_factory=class_row(OpenRun)) as cursor:
        await cursor.execute(_RUNS_OF_ONE, parameters)
        runs = await cursor.fetchall()
    async with connection.cursor(row_factory=class_row(OpenCall)) as cursor:
        await cursor.execute(_CALLS_OF_ONE, parameters)
        return [*runs, *await cursor.fetchall()]


AT_ONCE = 2_000


def _parameters(topic: str, partition: int, than: datetime, old: bool) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "than": than,
        "old": old,
        "limit": AT_ONCE if old else None,
    }


# A conversation lies in one partition, so the frame that asked for the work says in which.
_UNCLAIMED = """
    JOIN contexts AS head
        ON head.context_id = work.context_id AND head.parked_version IS NULL AND NOT head.recording
    JOIN frames AS cause ON cause.context_id = work.context_id AND cause.version = work.version
    WHERE {of_what} AND (work.asked_at < %(than)s) = %(old)s
        AND NOT EXISTS (
            SELECT FROM claims
            WHERE claims.context_id = work.context_id AND claims.version = work.version AND claims.{id} = work.{id}
        )
    ORDER BY cause.generation, cause."offset"
"""

_PLACE = """
    cause.frame_id, cause.generation, cause."offset",
    EXISTS (
        SELECT FROM outbox
        WHERE outbox.topic = %(topic)s AND outbox.partition = cause.partition
            AND outbox.generation = cause.generation AND outbox."offset" = cause."offset" AND outbox.kind = 'effect'
    ) AS is_sent
"""


def _runs(of_what: str) -> str:
    return f"""
        SELECT work.context_id, work.version, work.run_id, {_PLACE}
        FROM (
            SELECT context_id, opened_version AS version, run_id, opened_at AS asked_at
            FROM runs
            WHERE status = 'open'
        ) AS work
        {_UNCLAIMED.format(of_what=of_what, id="run_id")}
        LIMIT %(limit)s
    """


def _calls(of_what: str) -> str:
    return f"""
        SELECT work.context_id, work.version, work.requested_version, work.ordinal, work.tool_call_id,
            work.function_name, work.group_id, {_PLACE}
        FROM (
            SELECT context_id, dispatched_version AS version, requested_version, ordinal, tool_call_id, function_name,
                group_id, dispatched_at AS asked_at
            FROM tool_calls
            WHERE status = 'dispatched'
        ) AS work
        {_UNCLAIMED.format(of_what=of_what, id="tool_call_id")}, work.requested_version, work.ordinal
        LIMIT %(limit)s
    """


_OF_A_PARTITION = "cause.partition = %(partition)s"
_OF_A_CONTEXT = "work.context_id = %(context_id)s"

_RUNS, _CALLS = _runs(_OF_A_PARTITION), _calls(_OF_A_PARTITION)
_RUNS_OF_ONE, _CALLS_OF_ONE = _runs(_OF_A_CONTEXT), _calls(_OF_A_CONTEXT)

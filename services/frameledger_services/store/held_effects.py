"""The statements of `projector.held_effects`: effects of a partition that catches up.

Each function runs one statement, in the caller's transaction if it has one, and none commits. Open work is found by its
partial indexes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frameledger.effects import CallFunction, RunInference
from frameledger_services.database_types import Connection
from frameledger_services.store.projections import PROJECTION


@dataclass(frozen=True, slots=True)
class UnclaimedWork:
    """An open run or a dispatched call without a claim. `effect` requests it; `generation` and `offset` are the place
    of the frame that opened or dispatched it. `is_requested`: the outbox has effects of that frame; `is_closed`: the
    outbox has frames that close its work."""

    effect: RunInference | CallFunction
    generation: int
    offset: int
    is_requested: bool
    is_closed: bool

    @property
    def is_sent(self) -> bool:
        return self.is_requested or self.is_closed


async def hold(connection: Connection, topic: str, partition: int, epoch: int, until: int | None) -> None:
    """Hold the effects of a partition until this offset is reached, instead of an earlier offset, which the log may
    have lost. None releases them. Does nothing if another projector owns the partition by now."""
    await connection.execute(
        f"UPDATE projections SET effects_held_until = %s {_OURS}",
        (until, PROJECTION, topic, partition, epoch),
    )


async def is_held(connection: Connection, topic: str, partition: int, *, lock: bool = False) -> bool:
    """Returns whether the effects of a partition are held. With `lock` that does not change until the transaction
    ends."""
    cursor = await connection.execute(
        f"""
        SELECT effects_held_until IS NOT NULL FROM projections
        WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND partition = %s
        {"FOR SHARE" if lock else ""}
        """,
        (PROJECTION, topic, partition),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def reach(
    connection: Connection, topic: str, partition: int, epoch: int, next_offset: int
) -> datetime | None:
    """Lock a partition that is stored up to `next_offset`. Returns the database's time, or None if another projector
    owns it by now."""
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


async def open_work(
    connection: Connection, topic: str, partition: int, opened_before: datetime, *, old: bool
) -> AsyncGenerator[list[UnclaimedWork], None]:
    """Yields the open and unclaimed work of a partition in pages of `AT_ONCE`, in the order of its places: with `old`
    the runs and calls that were requested before a time, otherwise all others.

    In the caller's transaction. What the caller writes between two pages does not change what is yielded.
    """
    async with connection.cursor(name="open_work") as cursor:
        await cursor.execute(
            _WORK, {"topic": topic, "partition": partition, "than": opened_before, "old": old}
        )
        while rows := await cursor.fetchmany(AT_ONCE):
            yield [_open_work(row) for row in rows]


async def open_work_of(
    connection: Connection, topic: str, context_id: str, opened_before: datetime, *, old: bool
) -> list[UnclaimedWork]:
    """Returns the open and unclaimed work of one conversation, in the order of its places: with `old` what was
    requested before a time, otherwise everything else."""
    cursor = await connection.execute(
        _WORK_OF_ONE, {"topic": topic, "context_id": context_id, "than": opened_before, "old": old}
    )
    return [_open_work(row) for row in await cursor.fetchall()]


AT_ONCE = 2_000


def _open_work(row: Sequence[Any]) -> UnclaimedWork:
    context_id, version, id_, requested_version, ordinal, function_name, group_id, frame_id, *rest = row
    effect = (
        RunInference.of(context_id, version, id_, frame_id)
        if function_name is None
        else CallFunction.of(
            context_id, version, requested_version, ordinal, id_, function_name, group_id, frame_id
        )
    )
    return UnclaimedWork(effect, *rest)


def _unclaimed(work: str, of_what: str, id_column: str) -> str:
    # A conversation is in one partition, so the frame that requested the work identifies the partition.
    return f"""
        SELECT work.*, cause.frame_id, cause.generation, cause."offset",
            {_in_outbox("<>")} AS is_requested,
            {_in_outbox("=")} AS is_closed
        FROM ({work}) AS work
        JOIN contexts AS head
            ON head.context_id = work.context_id AND head.parked_version IS NULL AND NOT head.recording
        JOIN frames AS cause ON cause.context_id = work.context_id AND cause.version = work.version
        WHERE {of_what}
            AND NOT EXISTS (
                SELECT FROM claims
                WHERE claims.context_id = work.context_id AND claims.version = work.version
                    AND claims.{id_column} = work.id
            )
    """


def _in_outbox(is_topic: str) -> str:
    # Frames that close work go to the topic of the frame that requested it, effects to others.
    return f"""EXISTS (
                SELECT FROM outbox
                WHERE outbox.topic = %(topic)s AND outbox.partition = cause.partition
                    AND outbox.generation = cause.generation AND outbox."offset" = cause."offset"
                    AND outbox.kind = 'effect' AND outbox.to_topic {is_topic} %(topic)s
            )"""


_RUNS = """
    SELECT context_id, opened_version AS version, run_id AS id, NULL::bigint AS requested_version,
        NULL::int AS ordinal, NULL AS function_name, NULL AS group_id
    FROM runs
    WHERE status = 'open' AND (opened_at < %(than)s) = %(old)s
"""

_CALLS = """
    SELECT context_id, dispatched_version AS version, tool_call_id AS id, requested_version,
        ordinal, function_name, group_id
    FROM tool_calls
    WHERE status = 'dispatched' AND (dispatched_at < %(than)s) = %(old)s
"""


def _work(of_what: str) -> str:
    return f"""
        {_unclaimed(_RUNS, of_what, "run_id")}
        UNION ALL
        {_unclaimed(_CALLS, of_what, "tool_call_id")}
        ORDER BY generation, "offset", requested_version NULLS FIRST, ordinal
    """


_WORK = _work("cause.partition = %(partition)s")
_WORK_OF_ONE = _work("work.context_id = %(context_id)s")

"""What is overdue: one question to Postgres for each rule.

Each function runs one statement and changes nothing. It reads what is open, by the partial index that holds just that,
and a bounded number of frames of it, however long the conversation; it answers with at most `AT_ONCE` rows.

Two clocks. How long somebody has been silent is counted from when we could know of it, which is when the frame was
written to the tables (`recorded_at`): a projector that was away for an hour makes nobody late. A call's deadline is
counted from its dispatch. In both cases only partitions are looked at that are projected up to a moment ago
(`current`), so that nothing is judged that is settled on the log already. Parked contexts, recordings, and contexts
that have ended are nobody's to be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.rows import class_row

from frameledger.frames import types_said_by
from frameledger_services.claims import rules
from frameledger_services.store.projections import PROJECTION
from frameledger_services.timekeeper.overdue import Call, Run, Speech, Turn, WaitingCall

Connection = AsyncConnection[Any]
Row = TypeVar("Row")

AT_ONCE = 200

WINDOW = 10_000
"""So many of a context's newest frames are looked through for one; whoever did not speak in them was silent."""

LIVES = "head.parked_version IS NULL AND NOT head.recording AND NOT head.ended"
"""Of a context `head`: it may be judged."""

OF_THE_USER = list(types_said_by("user"))
OF_AN_ANSWER = list(types_said_by("model"))
OF_THE_BOT = list(types_said_by("model", "voice"))


async def may_judge(connection: Connection, worker_id: str) -> bool:
    """Whether this worker has been connected for a whole lease: before, others may only seem to be gone."""
    cursor = await connection.execute(
        "SELECT connected_at < now() - make_interval(secs => lease_secs) FROM workers WHERE worker_id = %s",
        (worker_id,),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def reached(connection: Connection, topic: str) -> dict[int, int]:
    """The next offset of every partition that was ever projected, but for those that catch up: the projector has not
    asked yet for what is open there."""
    cursor = await connection.execute(
        """
        SELECT partition, next_offset FROM projections
        WHERE projection = %s AND topic = %s AND sealed_at IS NULL AND effects_held_until IS NULL
        """,
        (PROJECTION, topic),
    )
    return dict(await cursor.fetchall())


async def runs_unclaimed(connection: Connection, limit: float, current: Sequence[int]) -> list[Run]:
    """Open runs that have not started, and that no live worker has had since then.

    A worker that takes one before the frame is folded that ends it is told to stop, as by an interruption.
    """
    return await _rows(
        connection,
        Run,
        f"""
        SELECT run.context_id, head.version, run.run_id, run.attempt
        FROM runs AS run
        JOIN contexts AS head ON head.context_id = run.context_id
        JOIN frames AS opened
            ON opened.context_id = run.context_id AND opened.version = run.opened_version
        LEFT JOIN claims AS claim
            ON claim.context_id = run.context_id AND claim.version = run.opened_version
                AND claim.run_id = run.run_id
        LEFT JOIN workers AS holder ON holder.worker_id = claim.worker_id
        WHERE run.status = 'open' AND run.started_at IS NULL AND {LIVES}
            AND run.opened_at < {_before("limit")}
            -- Whichever is the latest; what is null does not count.
            AND greatest(opened.recorded_at, claim.released_at, holder.heartbeat_at) < {_before("limit")}
            AND opened.partition = ANY (%(current)s)
        ORDER BY run.opened_at
        LIMIT {AT_ONCE}
        """,
        limit=limit,
        current=list(current),
    )


async def runs_silent(connection: Connection, limit: float, current: Sequence[int]) -> list[Run]:
    """Open runs of which no frame was applied since then, whoever has them.

    Of an answer that names no run, the frames that name none are the run's.
    """
    return await _rows(
        connection,
        Run,
        f"""
        SELECT run.context_id, head.version, run.run_id, run.attempt
        FROM runs AS run
        JOIN contexts AS head ON head.context_id = run.context_id
        CROSS JOIN LATERAL ({
            _newest(
                "run.opened_version",
                '''
                frame.outcome = 'applied' AND (
                    frame.run_id = run.run_id
                    OR run.attempt = 0 AND frame.run_id IS NULL AND frame.type = ANY (%(of_an_answer)s)
                )
                ''',
            )
        }) AS heard
        WHERE run.status = 'open' AND {LIVES}
            AND run.opened_at < {_before("limit")}
            AND heard.recorded_at < {_before("limit")}
            AND heard.partition = ANY (%(current)s)
        ORDER BY run.opened_at
        LIMIT {AT_ONCE}
        """,
        limit=limit,
        current=list(current),
        of_an_answer=OF_AN_ANSWER,
    )


async def calls_overdue(
    connection: Connection, limit: float, grace: float, current: Sequence[int]
) -> list[Call]:
    """Calls past their deadline, whatever they do but wait for a person. It is counted from their dispatch.

    Those of a run that is still open are not committed: they end with it. Of a call that nobody dispatched its start
    counts, and of one that has not started either, since it waits for its turn, when the last other call of its
    context settled: as long as one runs there is somebody who works the queue off.
    """
    return await _rows(
        connection,
        Call,
        f"""
        SELECT {_CALL}
        FROM tool_calls AS call
        JOIN contexts AS head ON head.context_id = call.context_id
        JOIN frames AS announced
            ON announced.context_id = call.context_id AND announced.version = call.requested_version
        LEFT JOIN runs AS run ON run.context_id = call.context_id AND run.run_id = call.run_id
        {_STARTER}
        WHERE call.status IN ('announced', 'dispatched', 'running') AND {LIVES}
            -- Nothing is dispatched before it is announced, and there is an index of this.
            AND call.requested_at < {_before("grace")}
            AND CASE call.status WHEN 'announced' THEN {_IN_TURN}
                ELSE coalesce(call.dispatched_at, call.started_at, call.requested_at) END < {_before("grace")}
                - make_interval(secs => coalesce(call.timeout_secs, %(limit)s))
            AND NOT (call.status = 'announced' AND run.status IS NOT DISTINCT FROM 'open')
            AND announced.partition = ANY (%(current)s)
        ORDER BY call.requested_at
        LIMIT {AT_ONCE}
        """,
        limit=limit,
        grace=grace,
        current=list(current),
    )


async def calls_abandoned(connection: Connection, limit: float, current: Sequence[int]) -> list[Call]:
    """Interrupted calls that still run, of which no live worker has been there to say what became of them since then.

    Of workers only, who claim what they do: whoever runs calls without that is not known here.
    """
    return await _rows(
        connection,
        Call,
        f"""
        SELECT {_CALL}
        FROM tool_calls AS call
        JOIN contexts AS head ON head.context_id = call.context_id
        JOIN frames AS interruption
            ON interruption.context_id = call.context_id AND interruption.version = call.interrupted_version
        LEFT JOIN claims AS claim
            ON claim.context_id = call.context_id AND claim.version = call.dispatched_version
                AND claim.tool_call_id = call.tool_call_id
        LEFT JOIN workers AS holder ON holder.worker_id = claim.worker_id
        {_STARTER}
        WHERE call.status = 'running' AND call.interrupted_version IS NOT NULL AND call.attempt > 0 AND {LIVES}
            AND {rules.alive("holder")} IS NOT TRUE
            AND greatest(interruption.recorded_at, claim.released_at, holder.heartbeat_at) < {_before("limit")}
            AND interruption.partition = ANY (%(current)s)
        ORDER BY call.requested_at
        LIMIT {AT_ONCE}
        """,
        limit=limit,
        current=list(current),
    )


async def calls_lost(connection: Connection, limit: float, current: Sequence[int]) -> list[Call]:
    """Calls that a worker started, that are not safe to retry, and that no live worker has had since then.

    Whoever had them is dead, or the database lost its claim; a worker that serves the function settles them first. Of
    workers only, as above.
    """
    return await _rows(
        connection,
        Call,
        f"""
        SELECT {_CALL}
        FROM tool_calls AS call
        JOIN contexts AS head ON head.context_id = call.context_id
        JOIN frames AS started
            ON started.context_id = call.context_id AND started.version = call.started_version
        {rules.HOLDER}
        {_STARTER}
        WHERE call.status = 'running' AND call.interrupted_version IS NULL
            AND call.attempt > 0 AND call.safe_to_retry IS NOT TRUE AND {LIVES}
            AND starter.kind IS DISTINCT FROM 'timekeeper'
            AND {rules.NOBODY_HAS_IT}
            AND greatest(started.recorded_at, claim.released_at, claim.finished_at, holder.heartbeat_at)
                < {_before("limit")}
            AND started.partition = ANY (%(current)s)
        ORDER BY call.requested_at
        LIMIT {AT_ONCE}
        """,
        limit=limit,
        current=list(current),
    )


async def waiting_calls_overdue(
    connection: Connection, grace: float, current: Sequence[int]
) -> list[WaitingCall]:
    """Calls that wait for a person, past the deadline that they named."""
    return await _rows(
        connection,
        WaitingCall,
        f"""
        SELECT call.context_id, head.version, call.requested_version, call.tool_call_id, call.function_name,
            call.interrupted_version IS NOT NULL AS interrupted
        FROM tool_calls AS call
        JOIN contexts AS head ON head.context_id = call.context_id
        JOIN frames AS announced
            ON announced.context_id = call.context_id AND announced.version = call.requested_version
        WHERE call.status = 'waiting' AND {LIVES}
            AND call.waiting_deadline < {_before("grace")}
            AND announced.partition = ANY (%(current)s)
        ORDER BY call.waiting_deadline
        LIMIT {AT_ONCE}
        """,
        grace=grace,
        current=list(current),
    )


async def turns_overdue(
    connection: Connection, silent: float | None, final_words: float | None, current: Sequence[int]
) -> list[Turn]:
    """Turns of the user in which nothing was heard since then: `silent` while he speaks, `final_words` once he stopped.

    None leaves the turns of that kind alone.
    """
    return await _rows(
        connection,
        Turn,
        f"""
        SELECT head.context_id, head.version, head.turn_opened_version AS opened_version,
            heard.version AS heard_version, head.turn_waits AS waits
        FROM contexts AS head
        CROSS JOIN LATERAL ({
            _newest("head.turn_opened_version", "frame.type = ANY (%(of_the_user)s)")
        }) AS heard
        WHERE head.turn_opened_version IS NOT NULL AND {LIVES}
            AND heard.recorded_at < CASE
                WHEN head.turn_waits THEN {_before("final_words")}
                ELSE {_before("silent")}
            END
            AND heard.partition = ANY (%(current)s)
        LIMIT {AT_ONCE}
        """,
        silent=silent,
        final_words=final_words,
        current=list(current),
        of_the_user=OF_THE_USER,
    )


async def bots_overdue(connection: Connection, limit: float, current: Sequence[int]) -> list[Speech]:
    """Bots that speak, and of which nothing was heard since then: neither that they begin nor a word of an answer."""
    return await _rows(
        connection,
        Speech,
        f"""
        SELECT head.context_id, head.version, head.bot_since_version AS since_version
        FROM contexts AS head
        CROSS JOIN LATERAL ({_newest("head.bot_since_version", "frame.type = ANY (%(of_the_bot)s)")}) AS heard
        WHERE head.bot_since_version IS NOT NULL AND {LIVES}
            AND heard.recorded_at < {_before("limit")}
            AND heard.partition = ANY (%(current)s)
        LIMIT {AT_ONCE}
        """,
        limit=limit,
        current=list(current),
        of_the_bot=OF_THE_BOT,
    )


def _before(limit: str) -> str:
    """So many seconds ago; null if the limit is. The beginning of the statement, so that an index can be used."""
    return f"now() - make_interval(secs => %({limit})s::double precision)"


def _newest(since: str, matching: str) -> str:
    """The newest frame of `head` that matches, since a version. That version itself matches always, and so does the
    oldest frame of the window: versions have no gaps."""
    oldest = f"greatest({since}, head.version - {WINDOW} + 1)"
    return f"""
        SELECT frame.version, frame.recorded_at, frame.partition
        FROM frames AS frame
        WHERE frame.context_id = head.context_id AND frame.version BETWEEN {oldest} AND head.version
            AND (frame.version = {oldest} OR {matching})
        ORDER BY frame.version DESC
        LIMIT 1
    """


_IN_TURN = f"""
    greatest(call.requested_at, (
        SELECT max(CASE WHEN other.status IN ('dispatched', 'running') THEN 'infinity' ELSE other.settled_at END)
        FROM tool_calls AS other
        WHERE other.context_id = call.context_id AND other.requested_version > head.version - {WINDOW}
    ))
"""
"""Since when nobody was before `call` in its queue; never, as long as one is."""

_STARTER = 'LEFT JOIN workers AS starter ON starter.worker_id = call.worker COLLATE "C"'

# What a timekeeper started, in name only, did not run: it is as good as safe.
_CALL = """
    call.context_id, head.version, call.requested_version, call.tool_call_id, call.function_name, call.status,
    coalesce(call.safe_to_retry, false) OR starter.kind IS NOT DISTINCT FROM 'timekeeper' AS safe,
    call.interrupted_version IS NOT NULL AS interrupted
"""


async def _rows(connection: Connection, row: type[Row], statement: str, **parameters: Any) -> list[Row]:
    async with connection.cursor(row_factory=class_row(row)) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()

"""Runs that are overdue: no worker takes them, or their answer fell silent. `store.overdue` describes what all rules
share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from frameledger.frames import types_said_by
from frameledger_services.claims import rules
from frameledger_services.database_types import Connection
from frameledger_services.store.overdue import JUDGED, MAX_ROWS, ago, newest_frame, rows


@dataclass(frozen=True, slots=True)
class OverdueRun:
    """An open run. `version` is that of the context, and `attempt` is 0 before its first start. `causation_id` is the
    frame that opened it."""

    context_id: str
    version: int
    run_id: str
    attempt: int
    causation_id: UUID


async def unclaimed(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueRun]:
    """Returns open runs that have not started, and that no live worker had in the last `limit` seconds.

    A worker that claims one before its end is folded is asked to stop, as by an interruption. The tables do not show
    how long workers could claim a run of a partition whose effects were held; the timekeeper keeps that.
    """
    return await rows(
        connection,
        OverdueRun,
        f"""
        SELECT run.context_id, head.version, run.run_id, run.attempt, opened.frame_id AS causation_id
        FROM runs AS run
        JOIN contexts AS head ON head.context_id = run.context_id
        JOIN frames AS opened
            ON opened.context_id = run.context_id AND opened.version = run.opened_version
        LEFT JOIN claims AS claim
            ON claim.context_id = run.context_id AND claim.version = run.opened_version
                AND claim.run_id = run.run_id
        {rules.HOLDER_OF_CLAIM}
        WHERE run.status = 'open' AND run.started_at IS NULL AND {JUDGED}
            AND run.opened_at < {ago("limit")}
            -- The latest of them; NULLs do not count.
            AND greatest(opened.recorded_at, claim.released_at, claim.finished_at, holder.heartbeat_at)
                < {ago("limit")}
            AND opened.partition = ANY (%(current)s)
        ORDER BY run.opened_at
        LIMIT {MAX_ROWS}
        """,
        limit=limit,
        current=list(current),
    )


async def silent(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueRun]:
    """Returns open runs that had no applied frame in the last `limit` seconds, whether a worker has them or not.

    If the answer names no run, the model's frames without a run id belong to the run.
    """
    of_the_run = """
        frame.outcome = 'applied' AND (
            frame.run_id = run.run_id
            OR run.attempt = 0 AND frame.run_id IS NULL AND frame.type = ANY (%(types)s)
        )
    """
    return await rows(
        connection,
        OverdueRun,
        f"""
        SELECT run.context_id, head.version, run.run_id, run.attempt,
            {rules.frame_id_at("run.opened_version", of="run")} AS causation_id
        FROM runs AS run
        JOIN contexts AS head ON head.context_id = run.context_id
        CROSS JOIN LATERAL ({newest_frame("run.opened_version", of_the_run)}) AS heard
        WHERE run.status = 'open' AND {JUDGED}
            AND run.opened_at < {ago("limit")}
            AND heard.recorded_at < {ago("limit")}
            AND heard.partition = ANY (%(current)s)
        ORDER BY run.opened_at
        LIMIT {MAX_ROWS}
        """,
        limit=limit,
        current=list(current),
        types=list(types_said_by("model")),
    )

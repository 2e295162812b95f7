"""Speakers whose stop is missing, and the conditions that all queries for overdue work share.

Each function runs one statement and changes nothing. It reads what is open by a partial index, and a bounded number of
frames, however long the conversation is. It returns at most `MAX_ROWS` rows.

There are two clocks. Silence is measured from the time at which the last frame was written to the tables
(`recorded_at`), so nothing becomes overdue because the projector was down for an hour. A call's deadline is measured
from its dispatch. Both consider only partitions whose projection recently reached the end of the log (`current`), so
that nothing is settled here that is already settled on the log. Contexts that are parked, recordings or ended are
excluded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from psycopg.rows import class_row

from frameledger.frames import types_said_by
from frameledger_services.database_types import Connection

Row = TypeVar("Row")

MAX_ROWS = 200

WINDOW = 10_000
"""The number of a context's newest frames that are searched; a speaker without a frame among them is silent."""

JUDGED = "head.parked_version IS NULL AND NOT head.recording AND NOT head.ended"
"""The condition on a context `head` whose overdue work is settled."""


@dataclass(frozen=True, slots=True)
class OverdueTurn:
    """A turn of the user without a frame of the user since `heard_version`. `version` is that of the context.

    `waits`: it was stopped and its final words are missing; otherwise its stop is missing. `causation_id` is the frame
    that opened it.
    """

    context_id: str
    version: int
    opened_version: int
    heard_version: int
    waits: bool
    causation_id: UUID


@dataclass(frozen=True, slots=True)
class OverdueSpeech:
    """A speech of the bot, begun at `since_version`, whose stop is missing. `version` is that of the context, and
    `causation_id` the frame that began it."""

    context_id: str
    version: int
    since_version: int
    causation_id: UUID


async def turns(
    connection: Connection, silent: float | None, final_words: float | None, current: Sequence[int]
) -> list[OverdueTurn]:
    """Returns turns without a frame of the user for this many seconds: `silent` while the user speaks, `final_words`
    after the stop. None excludes turns of that kind."""
    return await rows(
        connection,
        OverdueTurn,
        f"""
        SELECT head.context_id, head.version, head.turn_opened_version AS opened_version,
            heard.version AS heard_version, head.turn_waits AS waits, opened.frame_id AS causation_id
        FROM contexts AS head
        JOIN frames AS opened ON opened.context_id = head.context_id AND opened.version = head.turn_opened_version
        CROSS JOIN LATERAL ({newest_frame("head.turn_opened_version", "frame.type = ANY (%(types)s)")}) AS heard
        WHERE head.turn_opened_version IS NOT NULL AND {JUDGED}
            AND heard.recorded_at < CASE WHEN head.turn_waits THEN {ago("final_words")} ELSE {ago("silent")} END
            AND heard.partition = ANY (%(current)s)
        LIMIT {MAX_ROWS}
        """,
        silent=silent,
        final_words=final_words,
        current=list(current),
        types=list(types_said_by("user")),
    )


async def speeches(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueSpeech]:
    """Returns speeches of the bot without one of its frames for `limit` seconds: neither a start nor a word of an
    answer."""
    return await rows(
        connection,
        OverdueSpeech,
        f"""
        SELECT head.context_id, head.version, head.bot_since_version AS since_version,
            began.frame_id AS causation_id
        FROM contexts AS head
        JOIN frames AS began ON began.context_id = head.context_id AND began.version = head.bot_since_version
        CROSS JOIN LATERAL ({newest_frame("head.bot_since_version", "frame.type = ANY (%(types)s)")}) AS heard
        WHERE head.bot_since_version IS NOT NULL AND {JUDGED}
            AND heard.recorded_at < {ago("limit")}
            AND heard.partition = ANY (%(current)s)
        LIMIT {MAX_ROWS}
        """,
        limit=limit,
        current=list(current),
        types=list(types_said_by("model", "voice")),
    )


def ago(limit: str) -> str:
    """SQL: `limit` seconds before the statement began, in a form that can use an index. NULL if `limit` is NULL."""
    return f"now() - make_interval(secs => %({limit})s::double precision)"


def newest_frame(since: str, matching: str) -> str:
    """SQL: the newest frame of `head` that matches, from version `since` on. The frame at `since` always matches, and
    so does the oldest one of the window; since versions have no gaps, there always is one."""
    oldest = f"greatest({since}, head.version - {WINDOW} + 1)"
    return f"""
        SELECT frame.version, frame.recorded_at, frame.partition
        FROM frames AS frame
        WHERE frame.context_id = head.context_id AND frame.version BETWEEN {oldest} AND head.version
            AND (frame.version = {oldest} OR {matching})
        ORDER BY frame.version DESC
        LIMIT 1
    """


async def rows(connection: Connection, row: type[Row], statement: str, **parameters: Any) -> list[Row]:
    """Returns the selected rows, each as a `row`."""
    async with connection.cursor(row_factory=class_row(row)) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()

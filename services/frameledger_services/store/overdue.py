"""Speakers whose stop does not come, and the conditions that all questions for overdue things share.

Each function runs one statement and changes nothing. It reads what is open, by the partial index that holds just that,
and a bounded number of frames of it, however long the conversation. It returns at most `MOST_ROWS` rows.

Two clocks. Silence is counted from when we could know of the last sign of life, which is when its frame was written to
the tables (`recorded_at`): nobody is late because the projector was away for an hour. A call's deadline is counted from
its dispatch. Both look only at partitions whose projection reached the log's end a moment ago (`current`), so that
nothing is judged that is settled on the log already. Contexts that are parked, recordings or ended are not judged.
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

MOST_ROWS = 200

WINDOW = 10_000
"""Only so many of a context's newest frames are searched; a speaker of which they hold none has been silent."""

JUDGED = "head.parked_version IS NULL AND NOT head.recording AND NOT head.ended"
"""Of a context `head`: what is overdue in it is settled."""


@dataclass(frozen=True, slots=True)
class OverdueTurn:
    """A turn of the user without a sign of life since `heard_version`. `version` is that of the context.

    `waits`: it was stopped, and its final words do not come; else its stop does not come. `causation_id` is the frame
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
    """A speech of the bot, begun at `since_version`, whose stop does not come. `version` is that of the context, and
    `causation_id` the frame that began it."""

    context_id: str
    version: int
    since_version: int
    causation_id: UUID


async def turns(
    connection: Connection, silent: float | None, final_words: float | None, current: Sequence[int]
) -> list[OverdueTurn]:
    """Returns turns without a sign of the user for so many seconds: `silent` while he speaks, `final_words` once he
    stopped. None leaves the turns of that kind alone."""
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
        LIMIT {MOST_ROWS}
        """,
        silent=silent,
        final_words=final_words,
        current=list(current),
        types=list(types_said_by("user")),
    )


async def speeches(connection: Connection, limit: float, current: Sequence[int]) -> list[OverdueSpeech]:
    """Returns speeches of the bot without a sign of it for `limit` seconds: neither a start nor a word of an answer."""
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
        LIMIT {MOST_ROWS}
        """,
        limit=limit,
        current=list(current),
        types=list(types_said_by("model", "voice")),
    )


def ago(limit: str) -> str:
    """SQL: the moment so many seconds before the statement began, so that an index can be used. NULL if `limit` is."""
    return f"now() - make_interval(secs => %({limit})s::double precision)"


def newest_frame(since: str, matching: str) -> str:
    """SQL: the newest frame of `head` that matches, from version `since` on. The frame at `since` matches in any case,
    and so does the oldest one of the window: versions have no gaps, so there is always one."""
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
    """Returns what the statement selects, each row as a `row`."""
    async with connection.cursor(row_factory=class_row(row)) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()

"""What people and operators ask the tables: a conversation at a moment, what is parked or rejected, how far it got.

Each function runs one statement on the caller's connection and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

from frameledger.record import Place
from frameledger_services.store.projections import PROJECTION

Connection = AsyncConnection[Any]

UNKNOWN_DAYS = 7
"""How long a frame of a type that is not known is spoken of: a slip that was mended lies in the archive for ever."""

COUNTED = 1_000
"""What is counted of things that may be many."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A version of a conversation, and what its newest version is waiting for."""

    context_id: str
    version: int
    newest: int
    logged_at: datetime | None
    """When the frame was logged that made the version; None for version 0."""

    recording: bool
    mirror: str | None
    """Who keeps its history elsewhere, if somebody does."""

    ended: bool
    open_run_id: str | None
    open_call_count: int
    parked_version: int | None
    parked_error: str | None

    erased_version: int
    """The last version of an earlier life that was erased; 0 if there was none."""

    @property
    def exists(self) -> bool:
        """Whether the conversation has this version."""
        return self.version == 0 or self.erased_version <= self.version <= self.newest


@dataclass(frozen=True, slots=True)
class ContextAt:
    """A context as a model gets it, and the positions of its messages."""

    positions: Sequence[int]
    messages: Sequence[Any]
    tools: Sequence[Any]
    tool_choice: Any
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One message of a transcript. `new`: no run had seen it by then."""

    position: int
    version: int
    logged_at: datetime
    who: str | None
    text: str | None
    new: bool


@dataclass(frozen=True, slots=True)
class Parked:
    """A conversation of which `waiting` frames, from version `since` on, are stored and not folded."""

    context_id: str
    since: int
    waiting: int
    parked_at: datetime
    error: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that was set aside."""

    topic: str
    partition: int
    offset: int
    logged_at: datetime | None
    recorded_at: datetime
    retried_at: datetime | None
    code: str
    error: str
    context_id: str | None
    key: bytes | None
    value: bytes | None
    generation: int
    headers: Sequence[Sequence[Any]]
    """As `store.outbox.headers_as_json` wrote them."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a partition was read."""

    partition: int
    next_offset: int
    gap: int | None
    """Records behind, as of when the owner last looked; None before it ever did."""

    lag_seconds: float | None
    """How old the newest record is that was read, if there is a gap; else 0. None like `gap`."""

    owner: str | None
    is_owned: bool
    """Whether the owner's session lives."""


async def moment(
    connection: Connection, context_id: str, *, version: int | None = None, time: datetime | None = None
) -> Moment | None:
    """A conversation at a version or at a time of the broker's, else as it is now; None if it is not there.

    The version is the one asked for even if the conversation has none such, see `Moment.exists`.
    """
    async with connection.cursor(row_factory=class_row(Moment)) as cursor:
        await cursor.execute(
            """
            SELECT
                head.context_id, at.version, head.version AS newest, frames.logged_at, head.recording, head.ended,
                setting_at(head.context_id, 'mirror', head.version) #>> '{}' AS mirror,
                head.open_run_id, head.open_call_count, head.parked_version, head.parked_error,
                coalesce(
                    (SELECT min(kept.version) - 1 FROM frames AS kept WHERE kept.context_id = head.context_id), 0
                ) AS erased_version
            FROM contexts AS head
            CROSS JOIN LATERAL (
                SELECT coalesce(
                    %(version)s::bigint, version_at(head.context_id, %(time)s::timestamptz), head.version
                ) AS version
            ) AS at
            LEFT JOIN frames ON frames.context_id = head.context_id AND frames.version = at.version
            WHERE head.context_id = %(id)s
            """,
            {"id": context_id, "version": version, "time": time},
        )
        return await cursor.fetchone()


async def context_at(connection: Connection, context_id: str, version: int) -> ContextAt:
    """The context at a version that it has."""
    cursor = await connection.execute(
        """
        SELECT
            context_at(%(id)s, %(version)s)::text,
            ARRAY(SELECT position FROM messages_at(%(id)s, %(version)s))
        """,
        {"id": context_id, "version": version},
    )
    row = await cursor.fetchone()
    assert row is not None, "a SELECT without FROM has one row"
    # Not with the connection's own JSON: a message may hold half of a surrogate pair, and not every reader takes it.
    return ContextAt(positions=row[1], **json.loads(row[0]))


async def transcript(connection: Connection, context_id: str, version: int) -> list[TranscriptLine]:
    """What was in a conversation at a version that it has, message by message."""
    async with connection.cursor(row_factory=class_row(TranscriptLine)) as cursor:
        await cursor.execute(
            """
            SELECT
                said.position, said.valid_from AS version, frames.logged_at, said.role AS who, said.text,
                said.valid_from > seen.version AND NOT coalesce(seen.recording, false) AS new
            FROM messages_at(%(id)s, %(version)s) AS said
            INNER JOIN frames ON frames.context_id = said.context_id AND frames.version = said.valid_from
            CROSS JOIN (
                SELECT
                    coalesce(max(runs.opened_version), 0) AS version,
                    setting_at(%(id)s, 'recording', %(version)s)::text::boolean AS recording
                FROM runs
                WHERE runs.context_id = %(id)s AND runs.opened_version <= %(version)s
            ) AS seen
            ORDER BY said.position
            """,
            {"id": context_id, "version": version},
        )
        return await cursor.fetchall()


async def parked(connection: Connection) -> list[Parked]:
    """The parked conversations, in the order in which that happened."""
    async with connection.cursor(row_factory=class_row(Parked)) as cursor:
        await cursor.execute(
            """
            SELECT
                context_id, parked_version AS since, version - parked_version + 1 AS waiting, parked_at,
                parked_error AS error
            FROM contexts
            WHERE parked_version IS NOT NULL
            ORDER BY contexts.parked_at, context_id
            """
        )
        return await cursor.fetchall()


async def dead_letters(connection: Connection, topic: str, limit: int) -> list[DeadLetter]:
    """The rejected frames of a topic, the newest first."""
    async with connection.cursor(row_factory=class_row(DeadLetter)) as cursor:
        await cursor.execute(
            _REJECTED + 'ORDER BY recorded_at DESC, partition, "offset" DESC LIMIT %s', (topic, limit)
        )
        return await cursor.fetchall()


async def dead_letters_at(connection: Connection, places: Sequence[Place]) -> list[DeadLetter]:
    """The rejected frames that lie at these places, in their order; a place that has none is passed over."""
    async with connection.cursor(row_factory=class_row(DeadLetter)) as cursor:
        await cursor.execute(
            _REJECTED_AT,
            (
                [place.topic for place in places],
                [place.partition for place in places],
                [place.generation for place in places],
                [place.offset for place in places],
            ),
        )
        return await cursor.fetchall()


async def dead_letters_not_retried(connection: Connection, topic: str) -> list[DeadLetter]:
    """The rejected frames of a topic that were not published again, in the order in which they were rejected."""
    async with connection.cursor(row_factory=class_row(DeadLetter)) as cursor:
        await cursor.execute(
            _REJECTED + 'AND retried_at IS NULL ORDER BY recorded_at, partition, "offset"', (topic,)
        )
        return await cursor.fetchall()


@dataclass(frozen=True, slots=True)
class UnknownFrames:
    """Frames of the last days whose type this release does not know. `count` goes up to `COUNTED`."""

    count: int
    newest_type: str
    newest_source: str | None


async def unknown_frames(connection: Connection) -> UnknownFrames | None:
    """Those that were logged in the last `UNKNOWN_DAYS` days; None if there are none."""
    async with connection.cursor(row_factory=class_row(UnknownFrames)) as cursor:
        await cursor.execute(
            """
            SELECT count(*) AS count, (array_agg(type ORDER BY logged_at DESC))[1] AS newest_type,
                (array_agg(source ORDER BY logged_at DESC))[1] AS newest_source
            FROM (
                SELECT type, source, logged_at FROM frames
                WHERE outcome = 'unknown' AND logged_at > now() - %s * interval '1 day'
                ORDER BY logged_at DESC
                LIMIT %s
            ) AS newest
            HAVING count(*) > 0
            """,
            (UNKNOWN_DAYS, COUNTED),
        )
        return await cursor.fetchone()


async def messages_without_time(connection: Connection) -> int:
    """Counts messages that an older release wrote, without the time at which they were said; up to `COUNTED`."""
    cursor = await connection.execute(
        "SELECT count(*) FROM (SELECT FROM messages WHERE said_at IS NULL LIMIT %s) AS without", (COUNTED,)
    )
    row = await cursor.fetchone()
    assert row is not None, "an aggregate has one row"
    return int(row[0])


async def commits_asynchronously(connection: Connection) -> bool:
    """Whether a commit of a session like this one may be gone after a crash, though its answer came."""
    row = await (await connection.execute("SHOW synchronous_commit")).fetchone()
    return row is not None and row[0] == "off"


async def progress(connection: Connection, topic: str) -> list[PartitionProgress]:
    """How far each partition of a topic was read, as far as one ever was, and whether somebody reads it now."""
    async with connection.cursor(row_factory=class_row(PartitionProgress)) as cursor:
        await cursor.execute(
            """
            SELECT
                p.partition, p.next_offset, greatest(p.end_offset - p.next_offset, 0) AS gap,
                CASE
                    WHEN p.next_offset < p.end_offset
                        THEN greatest(extract(epoch FROM clock_timestamp() - p.last_logged_at), 0)::float8
                    WHEN p.end_offset IS NOT NULL THEN 0::float8
                END AS lag_seconds,
                p.owner, session.pid IS NOT NULL AS is_owned
            FROM projections AS p
            LEFT JOIN pg_stat_get_activity(NULL) AS session
                -- Who may not look at others' sessions sees their pids and nothing else.
                ON session.pid = p.owner_pid AND coalesce(session.backend_start = p.owner_started_at, true)
            WHERE p.projection = %s AND p.topic = %s AND p.sealed_at IS NULL
            ORDER BY p.partition
            """,
            (PROJECTION, topic),
        )
        return await cursor.fetchall()


async def starts_of_run(connection: Connection, context_id: str, run_id: str) -> list[bytes]:
    """Returns the start frames of a run's attempts, as published, in order; none for a run that never opened."""
    cursor = await connection.execute(
        """
        SELECT convert_to(frames.payload::text, 'UTF8')
        FROM runs
        INNER JOIN frames ON frames.context_id = runs.context_id AND frames.version > runs.opened_version
        WHERE runs.context_id = %(id)s AND runs.run_id = %(run)s
            AND frames.run_id = %(run)s AND frames.type = 'LLMFullResponseStartFrame'
        ORDER BY frames.version
        """,
        {"id": context_id, "run": run_id},
    )
    return [payload for (payload,) in await cursor.fetchall()]


async def dead_letters_left(connection: Connection) -> int:
    """Returns how many rejected frames were not published again."""
    cursor = await connection.execute("SELECT count(*) FROM rejected_frames WHERE retried_at IS NULL")
    row = await cursor.fetchone()
    assert row is not None, "an aggregate has one row"
    return int(row[0])


_COLUMNS = """
    topic, partition, generation, "offset", logged_at, recorded_at, retried_at, code, error, context_id, key, value,
    headers
"""

_REJECTED = f"SELECT {_COLUMNS} FROM rejected_frames WHERE topic = %s "

_REJECTED_AT = f"""
    SELECT {_COLUMNS}
    FROM unnest(%s::text[], %s::int[], %s::int[], %s::bigint[])
        WITH ORDINALITY AS asked (topic, partition, generation, "offset", number)
    INNER JOIN rejected_frames USING (topic, partition, generation, "offset")
    ORDER BY asked.number
"""

"""A conversation at one version or time: head, context, transcript.

Each function runs one statement on the caller's connection and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


@dataclass(frozen=True, slots=True)
class Moment:
    """A version of a conversation, and what its newest version waits for."""

    context_id: str
    version: int
    newest: int
    logged_at: datetime | None
    """When the frame of this version was logged; None for version 0."""

    recording: bool
    mirror: str | None
    """The program that keeps its history elsewhere; None if none does."""

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
    """A context as a model receives it, and the positions of its messages."""

    positions: Sequence[int]
    messages: Sequence[Any]
    tools: Sequence[Any]
    tool_choice: Any
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One message of a transcript. `new`: no run had read it by then."""

    position: int
    version: int
    logged_at: datetime
    who: str | None
    text: str | None
    new: bool


async def moment(
    connection: Connection, context_id: str, *, version: int | None = None, time: datetime | None = None
) -> Moment | None:
    """Returns a conversation at a version or at a time on the broker's clock, by default as it is now; None if it does
    not exist. The version is the requested one even if the conversation does not have it; see `Moment.exists`.
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
    """Returns the context at a version that it has."""
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
    # Not with the connection's own JSON parser: a message may contain half of a surrogate pair, which not every parser
    # accepts.
    return ContextAt(positions=row[1], **json.loads(row[0]))


async def transcript(connection: Connection, context_id: str, version: int) -> list[TranscriptLine]:
    """Returns the messages of a conversation at a version that it has, one by one."""
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

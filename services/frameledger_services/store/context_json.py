"""A context as JSON text, as the database has it: no value in it is read or written again. One statement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row

from frameledger_services.store.contexts import ANSWER, MADE_BY_CALL


@dataclass(frozen=True, slots=True)
class ContextHead:
    """Which contexts a conversation has, and which one was asked for."""

    version: int
    """The one that was asked for: it may have none such, see `exists`."""

    newest: int
    first: int
    """The first version that it has: 0, or that of its erasure if it goes on after one."""

    rebuilt: int
    """How often its rows were replaced."""

    parked_version: int | None

    @property
    def exists(self) -> bool:
        """Whether the conversation has this version."""
        return self.version == 0 or self.first <= self.version <= self.newest


@dataclass(frozen=True, slots=True)
class ContextJson(ContextHead):
    """A context at a version. Texts are JSON."""

    era: int
    logged_at: datetime | None
    """When the frame was logged that made the version; None for version 0."""

    open_run_id: str | None
    """The run that is open now."""

    positions: list[int]
    messages: str
    """The messages, separated by commas."""

    answers: list[str | None]
    """As in `StoredContext`."""

    tools: str | None
    tool_choice: str | None
    settings: str | None
    prompt_caching: str | None
    skip_tts: str | None


async def head(
    connection: AsyncConnection[Any],
    context_id: str,
    *,
    version: int | None = None,
    time: datetime | None = None,
) -> ContextHead | None:
    """Returns what a conversation has, for a version, for a time of the broker's, or for now; None if it is not
    there."""
    async with connection.cursor(row_factory=class_row(ContextHead)) as cursor:
        await cursor.execute(
            f"SELECT {_HEAD} FROM {_FROM} WHERE head.context_id = %(id)s",
            {"id": context_id, "version": version, "time": time},
        )
        return await cursor.fetchone()


async def context_json(
    connection: AsyncConnection[Any],
    context_id: str,
    *,
    version: int | None = None,
    time: datetime | None = None,
) -> ContextJson | None:
    """Returns the context at a version, at a time, or now; None if the conversation is not there. Without messages and
    terms if it has no such version."""
    async with connection.cursor(row_factory=class_row(ContextJson)) as cursor:
        await cursor.execute(_CONTEXT, {"id": context_id, "version": version, "time": time})
        return await cursor.fetchone()


_FROM = """contexts AS head
    CROSS JOIN LATERAL (
        SELECT
            coalesce(
                %(version)s::bigint, version_at(head.context_id, %(time)s::timestamptz), head.version
            ) AS version,
            coalesce(
                (SELECT min(kept.version) - 1 FROM frames AS kept WHERE kept.context_id = head.context_id), 0
            ) AS first
    ) AS at"""

_HEAD = "at.version, head.version AS newest, at.first, head.rebuilt, head.parked_version"

_CONTEXT = f"""
    SELECT {_HEAD}, era_at(head.context_id, at.version) AS era, frames.logged_at, head.open_run_id,
        coalesce(found.positions, ARRAY[]::integer[]) AS positions, coalesce(found.messages, '') AS messages,
        setting_at(head.context_id, 'tools', at.version)::text AS tools,
        setting_at(head.context_id, 'tool_choice', at.version)::text AS tool_choice,
        setting_at(head.context_id, 'settings', at.version)::text AS settings,
        setting_at(head.context_id, 'prompt_caching', at.version)::text AS prompt_caching,
        setting_at(head.context_id, 'skip_tts', at.version)::text AS skip_tts,
        coalesce(found.answers, ARRAY[]::text[]) AS answers
    FROM {_FROM}
    LEFT JOIN frames ON frames.context_id = head.context_id AND frames.version = at.version
    CROSS JOIN LATERAL ({MADE_BY_CALL}) AS made
    CROSS JOIN LATERAL (
        SELECT string_agg(said.message::text, ',' ORDER BY said.position) AS messages,
            array_agg(said.position ORDER BY said.position) AS positions,
            array_agg({ANSWER} ORDER BY said.position) AS answers
        FROM messages AS said
        WHERE said.context_id = head.context_id AND said.era = era_at(head.context_id, at.version)
            AND said.valid_from <= at.version AND said.valid_to > at.version
    ) AS found
    WHERE head.context_id = %(id)s
"""

"""Contexts as JSON text, as the database stores them: their values are neither parsed nor serialized. One statement
reads any number of contexts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from frameledger.values import value
from frameledger_services.database_types import Connection
from frameledger_services.store.contexts import ANSWERS, SHOWN


class WantedContext(NamedTuple):
    """A moment of a conversation: a version, a time on the broker's clock, or now."""

    context_id: str
    version: int | None = None
    time: datetime | None = None


@value
class ContextHead:
    """The versions of a conversation, and the requested one."""

    version: int
    """The requested version; the conversation may not have it, see `exists`."""

    newest: int
    first: int
    """The first version that it has: 0, or that of its erasure if it continues after one."""

    rebuilt: int
    """How often its rows were replaced."""

    parked_version: int | None

    @property
    def exists(self) -> bool:
        """Whether the conversation has this version."""
        return self.version == 0 or self.first <= self.version <= self.newest


@value
class ContextJson(ContextHead):
    """A context at a version. Bytes are JSON. Messages and terms are missing if the conversation does not have the
    version."""

    era: int
    logged_at: datetime | None
    """When the frame of this version was logged; None for version 0."""

    open_run_id: str | None
    """The run that is open now."""

    positions: bytes
    messages: bytes
    answers: bytes
    """One for each message, separated by commas; answers and positions as in `StoredContext`."""

    tools: bytes | None
    tool_choice: bytes | None
    settings: bytes | None
    prompt_caching: bytes | None
    skip_tts: bytes | None
    mirror: bytes | None


async def heads(connection: Connection, wanted: Sequence[WantedContext]) -> list[ContextHead | None]:
    """Returns the head of each requested context, or None if its conversation does not exist."""
    rows = await _rows(connection, HEADS, wanted)
    return [None if row[0] is None else ContextHead(*row) for row in rows]


async def newest(connection: Connection, context_ids: Sequence[str]) -> list[ContextHead | None]:
    """Returns the newest head of each of these conversations, or None for one that does not exist. Cheaper than
    `heads`: every read of a polling client calls it."""
    async with connection.cursor(binary=True) as cursor:
        # Converting a Python list to an array takes psycopg as long as everything else together.
        await cursor.execute(NEWEST, {"ids": orjson.dumps(context_ids).decode()})
        by_id = {row[0]: ContextHead(row[1], *row[1:]) for row in await cursor.fetchall()}
    return [by_id.get(context_id) for context_id in context_ids]


async def contexts(connection: Connection, wanted: Sequence[WantedContext]) -> list[ContextJson | None]:
    """Returns these contexts, or None for a conversation that does not exist."""
    rows = await _rows(connection, CONTEXTS, wanted)
    return [None if row[0] is None else ContextJson(*row) for row in rows]


async def _rows(connection: Connection, query: str, wanted: Sequence[WantedContext]) -> list[tuple[Any, ...]]:
    ids, versions, times = zip(*wanted, strict=True)
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(query, {"ids": [*ids], "versions": [*versions], "times": [*times]})
        return await cursor.fetchall()


_FIRST = """coalesce(
                (SELECT min(kept.version) - 1 FROM frames AS kept WHERE kept.context_id = contexts.context_id), 0
            )"""

# The version of each moment, and the head of its conversation: NULL if it does not exist.
_ASKED = f"""unnest(%(ids)s::text[], %(versions)s::bigint[], %(times)s::timestamptz[])
        WITH ORDINALITY AS asked (context_id, version, time, number)
    LEFT JOIN LATERAL (
        SELECT
            coalesce(asked.version, version_at(contexts.context_id, asked.time), contexts.version) AS version,
            contexts.version AS newest,
            {_FIRST} AS first,
            contexts.context_id, contexts.rebuilt, contexts.parked_version, contexts.open_run_id
        FROM contexts
        WHERE contexts.context_id = asked.context_id
        LIMIT 1
    ) AS head ON true"""

_HEAD = "head.version, head.newest, head.first, head.rebuilt, head.parked_version"

HEADS = f"SELECT {_HEAD} FROM {_ASKED} ORDER BY asked.number"

NEWEST = f"""
    SELECT context_id, version, {_FIRST} AS first, rebuilt, parked_version
    FROM contexts
    WHERE context_id = ANY (ARRAY(SELECT json_array_elements_text(%(ids)s::json)))
"""

CONTEXTS = f"""
    SELECT {_HEAD}, head_era.era, frames.logged_at, head.open_run_id,
        convert_to(coalesce(array_to_string(found.positions, ','), ''), 'UTF8') AS positions,
        convert_to(coalesce(found.messages, ''), 'UTF8') AS messages,
        convert_to(btrim(coalesce(array_to_json(answered.answers)::text, ''), '[]'), 'UTF8') AS answers,
        convert_to(setting_at(asked.context_id, 'tools', head.version)::text, 'UTF8') AS tools,
        convert_to(setting_at(asked.context_id, 'tool_choice', head.version)::text, 'UTF8') AS tool_choice,
        convert_to(setting_at(asked.context_id, 'settings', head.version)::text, 'UTF8') AS settings,
        convert_to(setting_at(asked.context_id, 'prompt_caching', head.version)::text, 'UTF8') AS prompt_caching,
        convert_to(setting_at(asked.context_id, 'skip_tts', head.version)::text, 'UTF8') AS skip_tts,
        convert_to(setting_at(asked.context_id, 'mirror', head.version)::text, 'UTF8') AS mirror
    FROM {_ASKED}
    CROSS JOIN LATERAL (SELECT era_at(asked.context_id, head.version) AS era OFFSET 0) AS head_era
    LEFT JOIN frames ON frames.context_id = asked.context_id AND frames.version = head.version
    CROSS JOIN LATERAL (
        SELECT string_agg(said.message::text, ',' ORDER BY said.position) AS messages,
            {SHOWN}
        FROM messages AS said
        WHERE said.context_id = asked.context_id AND said.era = head_era.era
            AND said.valid_from <= head.version AND said.valid_to > head.version
    ) AS found
    CROSS JOIN LATERAL ({ANSWERS}) AS answered
    ORDER BY asked.number
"""

"""A context at a version, with everything that a request to a model consists of. One statement, so from one
snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from frameledger.context import LLMContext
from frameledger.errors import NotFoundError
from frameledger.frames.base import INT64_MAX
from frameledger.ids import ContextId, Version
from frameledger_services.database_types import Connection
from frameledger_services.store.erasures import NEWEST_FIRST


class NoSuchContextError(NotFoundError):
    """No frame of this conversation is in the database.

    Remedy: Check the id. If it was published just now, wait for it: `publish(..., wait=True)`.
    """

    def __init__(self, context_id: str, sentence: str | None = None) -> None:
        super().__init__(sentence or f"There is no context {context_id!r} in the database.")
        self.context_id = context_id


class ContextErasedError(NoSuchContextError):
    """The conversation was erased, and no frame was published to it since. `why` is the given reason, or None if a
    gateway withholds it from a token that redacts content.

    Remedy: Its receipt is in the table `erasures`. A frame that is published to its id begins a new conversation,
    unless the setting `erased_ids` refuses it.
    """

    def __init__(self, context_id: str, version: int, erased_at: datetime, why: str | None) -> None:
        when = erased_at.astimezone(UTC)
        super().__init__(
            context_id,
            f"The context {context_id!r} was erased at version {version} on {when:%Y-%m-%d at %H:%M} UTC, and nothing "
            "was published to it since." + ("" if why is None else f" The reason given was: {why}"),
        )
        self.version = version
        self.erased_at = erased_at
        self.why = why


class NoSuchVersionError(NotFoundError):
    """The conversation has fewer frames than that, or the version was erased.

    Remedy: Request a version up to `newest`, or None for the newest one.
    """

    def __init__(self, context_id: str, version: int, newest: int, erased: int = 0) -> None:
        super().__init__(
            f"The context {context_id!r} has no version {version}; it has {erased} to {newest}."
            + (" Earlier versions were erased." if erased else "")
        )
        self.context_id = context_id
        self.version = version
        self.newest = newest


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A context as it was after `version` frames of its conversation."""

    context_id: ContextId
    version: Version
    context: LLMContext

    prompt_caching: bool | None = None
    """The value of the latest `LLMEnablePromptCachingFrame`, or None if there was none."""

    skip_tts: bool | None = None
    """The value of the latest `LLMConfigureOutputFrame`, or None if there was none."""

    limits: Mapping[str, Any] = field(default_factory=dict)
    """The limits of the latest `LLMSetLimitsFrame` by name; empty if there was none."""

    answers: tuple[str | None, ...] = ()
    """For each message, a text that identifies the model's answer that it belongs to, and is the same for all messages
    of that answer; None if it belongs to none, or if that was not published."""

    positions: tuple[int, ...] = ()
    """For each message its position in the history, which `LLMMessageRewriteFrame` names. There are gaps."""

    mirror: str | None = None
    """The program that keeps the history elsewhere (`LLMMirrorFrame`); None if it is kept here."""

    parked_version: int | None = None
    """The version from which on frames are stored unfolded, as of now; None if the conversation is not parked."""


async def context(connection: Connection, context_id: str, version: int | None = None) -> StoredContext:
    """Returns the context at a version, by default at the newest. 0 is the context before its first frame.

    Raises `NoSuchContextError`, `ContextErasedError`, and `NoSuchVersionError`.
    """
    # PostgreSQL accepts no integers beyond 64 bits; no conversation has the version that is queried instead.
    asked = None if version is None else max(-1, min(version, INT64_MAX))
    cursor = await connection.execute(CONTEXT, {"id": context_id, "version": asked})
    row = await cursor.fetchone()
    if row is None:
        raise await missing(connection, context_id)
    newest, at, erased, parked_version, messages, *texts = row
    tools, tool_choice, settings, prompt_caching, skip_tts, limits, mirror, answers, positions = map(
        _loads, texts
    )
    if at and not erased <= at <= newest:
        raise NoSuchVersionError(context_id, at if version is None else version, newest, erased)
    wire = {
        # Read as one text, which is faster than reading each message.
        "messages": loads(f"[{messages or ''}]"),
        "tools": tools,
        "tool_choice": tool_choice,
        "settings": settings,
    }
    return StoredContext(
        ContextId(context_id),
        Version(at),
        LLMContext.from_wire(wire, copy=False),
        prompt_caching=prompt_caching,
        skip_tts=skip_tts,
        limits=limits or {},
        answers=tuple(answers or ()),
        positions=tuple(positions or ()),
        mirror=mirror,
        parked_version=parked_version,
    )


async def missing(connection: Connection, context_id: str) -> NoSuchContextError:
    """Returns the error for a conversation that does not exist: it was erased (`ContextErasedError`), or never
    existed."""
    cursor = await connection.execute(_ERASED, (context_id,))
    row = await cursor.fetchone()
    return NoSuchContextError(context_id) if row is None else ContextErasedError(context_id, *row)


def loads(text: str) -> Any:
    """Returns the value of JSON text, as the standard library reads it."""
    data = text.encode()
    # orjson reads integers beyond 64 bits as floats. Finding a long run of digits this way takes a tenth of a search.
    if _MANY_DIGITS in data.translate(_DIGITS):
        return json.loads(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # A payload may contain half of a surrogate pair, whose other half arrived with the next frame.
        return json.loads(data)


def _loads(text: str | None) -> Any:
    return None if text is None else loads(text)


_ERASED = f"""
    SELECT version, erased_at, why FROM erasures WHERE context_id = %s ORDER BY {NEWEST_FIRST} LIMIT 1
"""

_DIGITS = bytes(ord("0") if chr(byte).isascii() and chr(byte).isdigit() else 0 for byte in range(256))
_MANY_DIGITS = b"0" * 19

SHOWN = """
            array_agg(said.position ORDER BY said.position) AS positions,
            array_agg('run ' || said.run_id ORDER BY said.position) AS runs,
            array_agg(
                CASE WHEN said.run_id IS NULL AND said.role = 'assistant' THEN said.valid_from END
                ORDER BY said.position
            ) AS starts
"""
"""Columns of an aggregate over the messages of a context, `said`, as `found`: the input of `ANSWERS`."""

ANSWERS = """
        SELECT array_agg(coalesce(shown.run, made.answer) ORDER BY shown.number) AS answers
        FROM unnest(found.runs, found.starts) WITH ORDINALITY AS shown (run, start, number)
        LEFT JOIN LATERAL (
            SELECT
                CASE
                    WHEN run_id IS NOT NULL THEN 'run ' || run_id
                    WHEN requested_version < started_version THEN 'announced ' || requested_version
                    ELSE 'group ' || group_id
                END AS answer
            FROM tool_calls
            WHERE tool_calls.context_id = head.context_id AND tool_calls.started_version = shown.start
            LIMIT 1
        ) AS made ON true
"""
"""The model's answer that each message belongs to (`StoredContext.answers`), beside the columns `SHOWN` as `found`.

The start of a call writes the messages of that call, the call itself first. Each is looked up by that version in the
index `tool_calls_by_start`: a conversation keeps the calls of all its eras, and a join would be planned for the small
number that most conversations have.
"""

CONTEXT = f"""
    SELECT
        head.version, at.version,
        -- As context_at(): a version before an erasure does not exist any more. The newest one always does.
        CASE
            WHEN %(version)s::bigint IS NULL THEN 0
            ELSE coalesce((SELECT min(kept.version) - 1 FROM frames AS kept WHERE kept.context_id = %(id)s), 0)
        END,
        head.parked_version, found.messages,
        setting_at(context_id, 'tools', at.version)::text,
        setting_at(context_id, 'tool_choice', at.version)::text,
        setting_at(context_id, 'settings', at.version)::text,
        setting_at(context_id, 'prompt_caching', at.version)::text,
        setting_at(context_id, 'skip_tts', at.version)::text,
        setting_at(context_id, 'limits', at.version)::text,
        setting_at(context_id, 'mirror', at.version)::text,
        -- As JSON: psycopg reads an array in twice the time or more.
        array_to_json(answered.answers)::text, array_to_json(found.positions)::text
    FROM contexts AS head
    CROSS JOIN LATERAL (SELECT coalesce(%(version)s::bigint, head.version) AS version) AS at
    CROSS JOIN LATERAL (
        SELECT
            string_agg(said.message::text, ',' ORDER BY said.position) AS messages,
            {SHOWN}
        FROM messages AS said
        WHERE said.context_id = %(id)s AND said.era = era_at(%(id)s, at.version)
            AND said.valid_from <= at.version AND said.valid_to > at.version
    ) AS found
    CROSS JOIN LATERAL ({ANSWERS}) AS answered
    WHERE head.context_id = %(id)s
"""

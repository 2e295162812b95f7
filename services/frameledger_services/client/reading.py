"""What the tables say about a conversation: its context at a version, and its frames. One statement each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from psycopg import AsyncConnection, IsolationLevel
from psycopg.rows import class_row

from frameledger.context import LLMContext
from frameledger.frames import AnyFrame
from frameledger.ids import ContextId, Version
from frameledger.record import decode
from frameledger_services.store.projections import PROJECTION

Connection = AsyncConnection[Any]


class NoSuchContextError(LookupError):
    """No frame of this conversation is in the database."""

    def __init__(self, context_id: str) -> None:
        super().__init__(f"There is no context {context_id!r} in the database.")
        self.context_id = context_id


class NoSuchVersionError(LookupError):
    """The conversation has fewer frames than that."""

    def __init__(self, context_id: str, version: int, newest: int) -> None:
        super().__init__(f"The context {context_id!r} has no version {version}; it has 0 to {newest}.")
        self.context_id = context_id
        self.version = version
        self.newest = newest


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A context as it was after `version` frames of its conversation."""

    context_id: ContextId
    version: Version
    context: LLMContext


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A frame as it is stored, with what became of it when it was stored."""

    context_id: ContextId
    version: Version
    frame_id: UUID
    """The frame's id, or a uuid5 of one that is no uuid."""

    type: str
    outcome: str
    reason: str | None
    logged_at: datetime
    produced_at: datetime | None
    source: str | None
    run_id: str | None
    tool_call_id: str | None
    partition: int
    offset: int
    payload: bytes
    """The value of the record, byte for byte."""

    @property
    def frame(self) -> AnyFrame:
        """The frame that the payload is, decoded each time that this is asked for."""
        return decode(self.payload)


async def prepare(connection: Connection) -> None:
    """Make a connection one for reading. Once for each connection."""
    await connection.set_read_only(True)
    # What several statements of one transaction read is of one moment.
    await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)


async def context(connection: Connection, context_id: str, version: int | None = None) -> StoredContext:
    """The context at a version, at its newest if none is given. 0 is the context before its first frame.

    Raises `NoSuchContextError` and `NoSuchVersionError`.
    """
    async with connection.transaction():
        head = await (await connection.execute(_HEAD, {"id": context_id, "version": version})).fetchone()
        if head is None:
            raise NoSuchContextError(context_id)
        newest, at, tools, tool_choice, settings = head
        if not 0 <= at <= newest:
            raise NoSuchVersionError(context_id, at, newest)
        cursor = await connection.execute(_MESSAGES, {"id": context_id, "version": at})
        messages = await cursor.fetchall()
    wire = {
        # Read as one text, which is quicker than to read each message.
        "messages": loads(f"[{','.join([row[0] for row in messages])}]"),
        "tools": _loads(tools),
        "tool_choice": _loads(tool_choice),
        "settings": _loads(settings),
    }
    return StoredContext(ContextId(context_id), Version(at), LLMContext.from_wire(wire, copy=False))


async def frames_after(
    connection: Connection, context_id: str, version: int, *, limit: int
) -> list[StoredFrame]:
    """The next frames of a conversation after that version, in order, `limit` at most."""
    async with connection.cursor(row_factory=class_row(StoredFrame)) as cursor:
        await cursor.execute(_FRAMES, {"id": context_id, "version": version, "limit": limit})
        return await cursor.fetchall()


async def newest_version(connection: Connection, context_id: str) -> int:
    """How many frames of the conversation are stored; 0 for one that is not there."""
    cursor = await connection.execute("SELECT version FROM contexts WHERE context_id = %s", (context_id,))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def next_offset(connection: Connection, topic: str, partition: int) -> int | None:
    """Up to which offset a partition is in the tables; None if no projector has ever had it."""
    cursor = await connection.execute(
        "SELECT next_offset FROM projections WHERE projection = %s AND topic = %s AND generation = 1 "
        "AND partition = %s",
        (PROJECTION, topic, partition),
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


def loads(text: str) -> Any:
    """The value of JSON text, as the standard library reads it."""
    data = text.encode()
    # orjson reads integers beyond 64 bits as floats. To look for a row of digits so takes a tenth of a search for it.
    if _MANY_DIGITS in data.translate(_DIGITS):
        return json.loads(data)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # A payload may hold half a character, whose other half came with the next frame.
        return json.loads(data)


def _loads(text: str | None) -> Any:
    return None if text is None else loads(text)


_DIGITS = bytes(ord("0") if chr(byte).isascii() and chr(byte).isdigit() else 0 for byte in range(256))
_MANY_DIGITS = b"0" * 19

_HEAD = """
    SELECT
        head.version, at.version,
        setting_at(context_id, 'tools', at.version)::text,
        setting_at(context_id, 'tool_choice', at.version)::text,
        setting_at(context_id, 'settings', at.version)::text
    FROM contexts AS head
    CROSS JOIN LATERAL (SELECT coalesce(%(version)s::bigint, head.version) AS version) AS at
    WHERE context_id = %(id)s
"""

_MESSAGES = """
    SELECT message::text
    FROM messages
    WHERE context_id = %(id)s AND era = era_at(%(id)s, %(version)s)
        AND valid_from <= %(version)s AND valid_to > %(version)s
    ORDER BY position
"""

_FRAMES = """
    SELECT
        context_id, version, frame_id, type, outcome, reason, logged_at, produced_at, source, run_id, tool_call_id,
        partition, "offset", convert_to(payload::text, 'UTF8') AS payload
    FROM frames
    WHERE context_id = %(id)s AND version > %(version)s
    ORDER BY version
    LIMIT %(limit)s
"""

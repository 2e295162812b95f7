"""Queries about a conversation: its context at a version, and its frames. One statement each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from operator import index
from typing import SupportsIndex
from uuid import UUID

from psycopg.rows import class_row

from frameledger.frames import AnyFrame
from frameledger.frames.base import INT64_MAX
from frameledger.ids import ContextId, Version
from frameledger.partition import partition_for
from frameledger.record import decode, is_context_id
from frameledger_services.database_types import Connection
from frameledger_services.store.contexts import (
    ContextErasedError,
    NoSuchContextError,
    NoSuchVersionError,
    StoredContext,
    context,
)
from frameledger_services.store.projections import PROJECTION

__all__ = [
    "ContextErasedError",
    "NoSuchContextError",
    "NoSuchVersionError",
    "StoredContext",
    "StoredFrame",
    "context",
    "frames_after",
    "may_exist",
    "newest_version",
    "next_offset",
    "partition_of",
    "whole",
    "whole_after",
]


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A stored frame, with its outcome when it was stored."""

    context_id: ContextId
    version: Version
    frame_id: UUID
    """The frame's id; a uuid5 of it if it is not a UUID."""

    type: str
    outcome: str
    reason: str | None
    logged_at: datetime
    produced_at: datetime | None
    source: str | None
    run_id: str | None
    tool_call_id: str | None
    partition: int
    generation: int
    offset: int
    payload: bytes
    """The value of the record, byte for byte."""

    @property
    def frame(self) -> AnyFrame:
        """The payload as a frame, decoded at each access."""
        return decode(self.payload)


def may_exist(context_id: object) -> bool:
    """Returns whether a conversation with this id can exist. Raises TypeError for an id that is not text, such as a
    UUID: a query for it would find nothing, whatever was published under its text."""
    if not isinstance(context_id, str):
        raise TypeError(f"A context id is text, not {context_id!r}.")
    return is_context_id(context_id)


def whole(version: SupportsIndex) -> int:
    """Returns a version as an integer. Raises TypeError for other values: in SQL nothing is greater than NULL, which
    None would become (the `Last-Event-ID` of a page's first request), and 1.5 would be rounded."""
    try:
        return index(version)
    except TypeError:
        raise TypeError(f"A version is an integer of at least 0, not {version!r}.") from None


def whole_after(version: SupportsIndex) -> int:
    """Returns the version after which frames are read, within the 64 bits that the database accepts. Raises TypeError
    like `whole`."""
    return max(0, min(whole(version), INT64_MAX))


async def frames_after(
    connection: Connection, context_id: str, version: int, *, limit: int
) -> list[StoredFrame]:
    """Returns the frames of a conversation after a version, in order, at most `limit`."""
    async with connection.cursor(row_factory=class_row(StoredFrame)) as cursor:
        await cursor.execute(_FRAMES, {"id": context_id, "version": version, "limit": limit})
        return await cursor.fetchall()


async def newest_version(connection: Connection, context_id: str) -> int:
    """Returns the number of stored frames of the conversation; 0 if it does not exist."""
    cursor = await connection.execute("SELECT version FROM contexts WHERE context_id = %s", (context_id,))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def partition_of(connection: Connection, topic: str, context_id: str) -> int | None:
    """Returns the partition from which a conversation's frames are read; None before a projector has seen the topic."""
    cursor = await connection.execute(
        "SELECT partitions FROM topics WHERE topic = %s ORDER BY generation DESC LIMIT 1", (topic,)
    )
    row = await cursor.fetchone()
    return None if row is None else partition_for(context_id.encode(), int(row[0]))


async def next_offset(connection: Connection, topic: str, partition: int) -> int | None:
    """Returns the next offset of a partition; None if no projector has ever read it."""
    cursor = await connection.execute(
        "SELECT next_offset FROM projections WHERE projection = %s AND topic = %s AND sealed_at IS NULL "
        "AND partition = %s",
        (PROJECTION, topic, partition),
    )
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


_FRAMES = """
    SELECT
        context_id, version, frame_id, type, outcome, reason, logged_at, produced_at, source, run_id, tool_call_id,
        partition, generation, "offset", convert_to(payload::text, 'UTF8') AS payload
    FROM frames
    WHERE context_id = %(id)s AND version > %(version)s
    ORDER BY version
    LIMIT %(limit)s
"""

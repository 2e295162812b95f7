"""Ids of frames as UUIDs, as the tables store them; and which of some ids are stored."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Literal
from uuid import UUID, uuid5

from frameledger_services.database_types import Connection

FRAME_IDS = UUID("2b3f6a52-0c1e-5f7b-9d84-6a1f2e3c4b5d")
"""The uuid5 namespace of ids that are not uuids. It never changes: stored ids depend on it."""


def frame_uuid(frame_id: str) -> UUID:
    """Returns the id under which a frame is stored: its own if that is a UUID, otherwise a uuid5 of it."""
    try:
        return UUID(frame_id)
    except ValueError:
        return uuid5(FRAME_IDS, frame_id)


@lru_cache(maxsize=1_024)
def cause_uuid(causation_id: str) -> UUID:
    """Returns the id under which the frame of this id is or would be stored. All frames of an answer have one cause."""
    return frame_uuid(causation_id)


async def payloads(
    connection: Connection,
    pairs: Collection[tuple[str, UUID]],
    table: Literal["frames", "erasures"] = "frames",
) -> dict[tuple[str, UUID], bytes]:
    """Returns the payloads of those of these frames, given as context and frame id, that are already stored, or of
    those that erased their context."""
    if not pairs:
        return {}
    cursor = await connection.execute(
        f"""
        SELECT {table}.context_id, {table}.frame_id, {table}.payload::text
        FROM unnest(%s::text[], %s::uuid[]) AS asked (context_id, frame_id)
        JOIN {table} USING (context_id, frame_id)
        """,
        ([context_id for context_id, _ in pairs], [frame_id for _, frame_id in pairs]),
    )
    return {(row[0], row[1]): row[2].encode() for row in await cursor.fetchall()}

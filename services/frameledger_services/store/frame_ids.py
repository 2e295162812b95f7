"""The ids of frames as the tables have them, which know uuids only."""

from __future__ import annotations

from uuid import UUID, uuid5

FRAME_IDS = UUID("2b3f6a52-0c1e-5f7b-9d84-6a1f2e3c4b5d")
"""The namespace of ids that are no uuids. It never changes: stored ids came from it."""


def frame_uuid(frame_id: str) -> UUID:
    """The id under which a frame is stored: its own if that is a uuid, else one made from it."""
    try:
        return UUID(frame_id)
    except ValueError:
        return uuid5(FRAME_IDS, frame_id)

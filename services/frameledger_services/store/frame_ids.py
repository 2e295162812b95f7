"""The ids of frames in the tables, which have uuids only."""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID, uuid5

FRAME_IDS = UUID("2b3f6a52-0c1e-5f7b-9d84-6a1f2e3c4b5d")
"""The uuid5 namespace of ids that are not uuids. It never changes: stored ids depend on it."""


def frame_uuid(frame_id: str) -> UUID:
    """Returns the id under which a frame is stored: its own if that is a uuid, else a uuid5 of it."""
    try:
        return UUID(frame_id)
    except ValueError:
        return uuid5(FRAME_IDS, frame_id)


@lru_cache(maxsize=1_024)
def cause_uuid(causation_id: str) -> UUID:
    """Returns the id under which the frame of this id is stored, if it is. All frames of an answer have one cause."""
    return frame_uuid(causation_id)

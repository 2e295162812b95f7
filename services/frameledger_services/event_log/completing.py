"""What a publisher adds to a frame that says neither who it is nor when it was made."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

from frameledger.frames import AnyFrame


def completed(frame: AnyFrame) -> AnyFrame:
    """The frame with an id and the time when it was made, if it has none."""
    missing: dict[str, str] = {}
    if frame.id is None:
        missing["id"] = str(uuid4())
    if frame.produced_at is None:
        missing["produced_at"] = datetime.now(UTC).isoformat(timespec="milliseconds")
    return frame.model_copy(update=missing) if missing else frame

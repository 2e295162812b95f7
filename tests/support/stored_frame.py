"""Makes a frame as a client reads it back from the tables."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

from frameledger.frames import AnyFrame, encode_frame
from frameledger_services.client import StoredFrame

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored_frame(
    frame: AnyFrame,
    version: int = 1,
    outcome: str = "applied",
    reason: str | None = None,
    frame_id: UUID | None = None,
) -> StoredFrame:
    """Returns this frame as the version of a conversation, with this outcome."""
    return StoredFrame(
        context_id="ctx",
        version=version,
        frame_id=frame_id or uuid4(),
        type=frame.type,
        outcome=outcome,
        reason=reason,
        logged_at=NOW,
        produced_at=None,
        source=None,
        run_id=getattr(frame, "run_id", None),
        tool_call_id=getattr(frame, "tool_call_id", None),
        partition=0,
        generation=1,
        offset=version,
        payload=encode_frame(frame),
    )

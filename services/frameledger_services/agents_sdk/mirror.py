"""The SDK keeps the history, and the conversation here is its mirror (RA5.mirror): nothing here runs or answers."""

from __future__ import annotations

from uuid import UUID, uuid5

from frameledger.frames import LLMMirrorFrame

MIRROR = "openai-agents"
_MIRRORS = UUID("4f6c2a17-0f0e-5b79-9c42-6f3f1f6b7d21")


def mirror_frame(session_id: str) -> LLMMirrorFrame:
    """Returns the frame that says so. Its id follows from the session: of all that are published one counts."""
    return LLMMirrorFrame(id=str(uuid5(_MIRRORS, session_id)), mirror=MIRROR, react=False)

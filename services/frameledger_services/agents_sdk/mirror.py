"""Marks a conversation as a mirror of the SDK's history (RA5.mirror): Frameledger runs and answers nothing in it."""

from __future__ import annotations

from uuid import UUID, uuid5

from frameledger.frames import LLMMirrorFrame

MIRROR = "openai-agents"
_MIRRORS = UUID("4f6c2a17-0f0e-5b79-9c42-6f3f1f6b7d21")


def mirror_frame(session_id: str) -> LLMMirrorFrame:
    """Returns the mirror frame. Its id derives from the session, so it counts once however often it is published."""
    return LLMMirrorFrame(id=str(uuid5(_MIRRORS, session_id)), mirror=MIRROR, react=False)

"""The newest frames of a stored conversation, as far back as a restore needs them."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    FunctionCallInProgressFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMirrorFrame,
    LLMRunFrame,
)
from frameledger_services.client import Client, StoredFrame
from frameledger_services.pipecat.unrecorded import SPOKEN, Unrecorded

WINDOWS = (500, 2_500, 10_000)
"""The numbers of newest frames that are searched for words that are in no message. The next number is used if such
words may be older than these frames, as in a very long answer. Reading 10,000 frames takes a second or two."""


async def newest_frames(client: Client, context_id: str, fence: int, newest: int) -> list[AnyFrame]:
    """Returns as many frames before the fence as needed, and the frames up to `newest`."""
    tail: list[AnyFrame] = []
    for most in WINDOWS:
        after = max(0, fence - 1 - most)
        frames = client.frames(context_id, after)
        tail = [one.frame async for one in frames if one.version <= newest and _counts(one)]
        if after == 0 or Unrecorded.of(tail).is_complete:
            break
    return tail


def shows_next_position(tail: Sequence[AnyFrame]) -> bool:
    """Returns whether the next message gets the position after the newest one. It does not if messages after that were
    removed, because positions are not reused. Without a mirror the fold removes messages, too."""
    for frame in reversed(tail):
        match frame:
            case LLMMessagesAppendFrame() | LLMMessagesUpdateFrame():
                return frame.mirror is not None
            case LLMMessageRewriteFrame(message=None) | LLMMirrorFrame(mirror=None) | LLMContextFrame():
                return False
    return False


def is_being_answered(frames: Sequence[AnyFrame]) -> bool:
    """Returns whether these frames end with an open run of a worker."""
    is_asked = False
    for frame in frames:
        match frame:
            case LLMRunFrame():
                is_asked = SPOKEN in frame.metadata
            case LLMFullResponseEndFrame() | InterruptionFrame() | EndFrame() | CancelFrame():
                is_asked = False
            case ErrorFrame() if frame.fatal:
                is_asked = False
    return is_asked


def _counts(stored: StoredFrame) -> bool:
    """Returns whether the frame counts for repairs. Frames of a replaced process or a superseded answer do not, nor do
    starts of calls that another process had already started."""
    if isinstance(stored.frame, FunctionCallInProgressFrame) and stored.reason in (
        "call_started",
        "target_over",
    ):
        return False
    return stored.outcome == "applied" or (stored.reason != "mirror_superseded" and stored.run_id is None)

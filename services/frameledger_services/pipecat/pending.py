"""The bounded buffer of frames that wait to be published. Pure.

When it is full, evidence is dropped first, and a gap frame says how much and when. Then the waiting changes of messages
are replaced by one update with the whole history, so that the context is correct from the first published frame on. A
history that exceeds the bound is still kept, and is created again only after a quarter of its size was added, so that
the cost of a frame does not depend on the length of the history.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

MAX_FRAMES = 20_000
MAX_BYTES = 16 * 1024 * 1024

EXPENDABLE, FOLLOWED, MESSAGES = 0, 1, 2
"""Ranks of frames: evidence, tokens and interim words; frames that clients follow, such as turns and calls; frames with
messages, tools, settings, or the start and end of the pipeline, which are not published again."""

_MESSAGES = {
    "LLMMirrorFrame",
    "LLMMessagesAppendFrame",
    "LLMMessagesUpdateFrame",
    "LLMMessageRewriteFrame",
    "LLMSetToolsFrame",
    "LLMSetToolChoiceFrame",
    "LLMUpdateSettingsFrame",
    "LLMEnablePromptCachingFrame",
    "LLMConfigureOutputFrame",
    "StartFrame",
    "EndFrame",
    "CancelFrame",
}
HISTORY = {"LLMMessagesAppendFrame", "LLMMessagesUpdateFrame", "LLMMessageRewriteFrame"}
QUESTION, GAP = "LLMRunFrame", "pipecat/GapFrame"
_EXPENDABLE = {"LLMTextFrame", "LLMThoughtTextFrame", "InterimTranscriptionFrame"}


def rank_of(kind: str) -> int:
    """Returns the rank of a frame type: lower ranks are dropped first."""
    if kind in _MESSAGES:
        return MESSAGES
    return EXPENDABLE if kind in _EXPENDABLE or kind.startswith("pipecat/") else FOLLOWED


@dataclass(slots=True)  # not frozen, as `CapturedFrame` is not
class Waiting:
    """A frame that is queued for publishing."""

    kind: str
    ns: int
    size: int
    frame: Any
    """The encoded frame."""


class Pending:
    """The waiting frames in order. `gap` makes the frame that reports dropped frames, `history` the frames with all
    messages."""

    def __init__(
        self,
        gap: Callable[[dict[str, int], int, int], Waiting],
        history: Callable[[], list[Waiting]],
        *,
        max_frames: int = MAX_FRAMES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._gap, self._history = gap, history
        self._max_frames, self._max_bytes = max_frames, max_bytes
        self._waiting: deque[Waiting] = deque()
        self._bytes = 0
        self._kept_frames = self._kept_bytes = 0
        """The size after the last dropping and replacing."""

        self._unreported: Counter[str] = Counter()
        self._dropped_between = (0, 0)
        self._gap_waits = False
        self.dropped: Counter[str] = Counter()
        """All dropped frames by type."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def bytes(self) -> int:
        return self._bytes

    @property
    def oldest_ns(self) -> int | None:
        return self._waiting[0].ns if self._waiting else None

    def add(self, frames: Iterable[Waiting]) -> None:
        """Add the frames of one captured item. Never drops or replaces frames between them."""
        for frame in frames:
            self._waiting.append(frame)
            self._bytes += frame.size
        if len(self._waiting) > self._max_frames or self._bytes > self._max_bytes:
            self._shrink_if_much_was_added()

    def _shrink_if_much_was_added(self) -> None:
        max_frames = max(self._max_frames, self._kept_frames + self._max_frames / 4)
        more_bytes = max(self._max_bytes, self._kept_bytes) / 4
        max_bytes = max(self._max_bytes, self._kept_bytes + more_bytes)
        if len(self._waiting) > max_frames or self._bytes > max_bytes:
            self._shrink()

    def take(self, most: int) -> list[Waiting]:
        """Removes and returns the next frames."""
        frames = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._bytes -= sum(one.size for one in frames)
        self._kept_frames = min(self._kept_frames, len(self._waiting))
        self._kept_bytes = min(self._kept_bytes, self._bytes)
        if self._gap_waits and any(one.kind == GAP for one in frames):
            self._gap_waits = False
            self._unreported.clear()
        return frames

    def _is_over(self, history_bytes: int = 0) -> bool:
        """Returns whether more waits than dropping and replacing should leave: three quarters of the bound, or the
        history and a quarter of the bound, if that is more."""
        max_bytes = max(self._max_bytes * 0.75, self._max_bytes * 0.25 + history_bytes)
        return len(self._waiting) > self._max_frames * 0.75 or self._bytes > max_bytes

    def _shrink(self) -> None:
        self._drop(lambda one: rank_of(one.kind) == EXPENDABLE)
        history_bytes = self._collapse() if self._is_over() else 0
        if self._is_over(history_bytes):
            self._drop(lambda one: rank_of(one.kind) == FOLLOWED)
        self._kept_frames, self._kept_bytes = len(self._waiting), self._bytes

    def _collapse(self) -> int:
        """Replace the waiting changes of messages by the whole history. Returns its bytes; 0 without such changes."""
        others = [one for one in self._waiting if one.kind not in HISTORY]
        if len(others) == len(self._waiting):
            return 0
        history = self._history()
        # The history goes before the first request: a request refers to the messages before it.
        request_place = next((place for place, one in enumerate(others) if one.kind == QUESTION), len(others))
        self._set([*others[:request_place], *history, *others[request_place:]])
        return sum(one.size for one in history)

    def _drop(self, goes: Callable[[Waiting], bool]) -> None:
        """Drop frames. A gap frame with the sum replaces one that still waits."""
        dropped_frames = [one for one in self._waiting if one.kind != GAP and goes(one)]
        if not dropped_frames:
            return
        for frame in dropped_frames:
            self._unreported[frame.kind] += 1
            self.dropped[frame.kind] += 1
        first = self._dropped_between[0] if self._gap_waits else dropped_frames[0].ns
        self._dropped_between = (first, dropped_frames[-1].ns)
        remaining = [one for one in self._waiting if one.kind != GAP and not goes(one)]
        self._gap_waits = True
        self._set([self._gap(dict(self._unreported), *self._dropped_between), *remaining])

    def _set(self, waiting: list[Waiting]) -> None:
        self._waiting = deque(waiting)
        self._bytes = sum(one.size for one in waiting)

"""Merging: the many pieces of an answer are published as few frames, without delaying any of them noticeably.

The first piece is sent at once. Later ones are buffered for a few tens of milliseconds, so that 60 tokens per second
become 20 frames: each frame costs the log, the fold and every subscriber. One send is in progress at a time, and pieces
that arrive meanwhile are buffered too, so a slow broker causes larger frames instead of a longer queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from frameledger.frames import AnyFrame, LLMTextFrame, LLMThoughtTextFrame

Send = Callable[[Sequence[AnyFrame]], Awaitable[None]]
"""Publishes frames in order, and returns when they are on the log."""

MAX_CHARACTERS = 64 * 1024
"""Maximum length of a merged frame: far below a topic's limit, also after minutes without a broker."""


class Merging:
    """The frames of one attempt, in the order in which they were added. `run` sends them; `add` never waits.

    Only adjacent plain pieces of text, or plain pieces of a thought, are merged: the joined text of all frames of one
    kind is the text that was added. If a send fails, `run` ends with its error, and unsent frames are lost.
    """

    def __init__(self, send: Send, *, merge_secs: float) -> None:
        """`merge_secs`: how long pieces are buffered, counted from the previous send."""
        self._send = send
        self._merge_secs = merge_secs
        self._buffer: list[AnyFrame | _Pieces] = []
        self._changed = asyncio.Event()
        self._urgent = False
        self._ended = False
        self._streaming: type[_Piece] | None = None

    @property
    def is_urgent(self) -> bool:
        """Whether a frame was added that has to be sent at once, and that `run` has not begun to send."""
        return self._urgent

    def add(self, frame: AnyFrame) -> None:
        """Add a frame. Unless it continues a stream of plain pieces, it is sent at once, with everything that was
        buffered before it."""
        if not _is_piece(frame):
            self._buffer.append(frame)
            self._urgent, self._streaming = True, None
        else:
            if self._streaming is not type(frame):
                self._urgent, self._streaming = True, type(frame)
            if not (self._buffer and _try_merge(self._buffer[-1], frame)):
                self._buffer.append(_Pieces(frame, [frame.text], len(frame.text)))
        self._changed.set()

    def end(self) -> None:
        """Mark the end: `run` sends the rest, and returns."""
        self._ended = self._urgent = True
        self._changed.set()

    async def run(self) -> None:
        """Send until the end. Raises the errors of a send."""
        loop = asyncio.get_running_loop()
        not_before = loop.time()
        while True:
            while not self._buffer:
                if self._ended:
                    return
                await self._change()
            while not self._urgent and loop.time() < not_before:
                # It may become urgent while it waits.
                await self._change(not_before)
            buffered, self._buffer = self._buffer, []
            self._urgent = self._ended
            if isinstance(buffered[-1], _Pieces):
                not_before = loop.time() + self._merge_secs
            await self._send([one.joined() if isinstance(one, _Pieces) else one for one in buffered])

    async def _change(self, deadline: float | None = None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
        except TimeoutError:
            return


_Piece = LLMTextFrame | LLMThoughtTextFrame


@dataclass(slots=True)
class _Pieces:
    """Pieces that become one frame. A list, because text that grows piece by piece would be copied each time."""

    first: _Piece
    texts: list[str]
    length: int

    def joined(self) -> AnyFrame:
        return (
            self.first
            if len(self.texts) == 1
            else self.first.model_copy(update={"text": "".join(self.texts)})
        )


_PLAIN = frozenset({"type", "text"})


def _is_piece(frame: AnyFrame) -> TypeGuard[_Piece]:
    """Returns whether the frame has only text. A frame with other fields, such as `append_to_context`, is kept
    unchanged."""
    return type(frame) in (LLMTextFrame, LLMThoughtTextFrame) and frame.model_fields_set <= _PLAIN


def _try_merge(last: AnyFrame | _Pieces, frame: _Piece) -> bool:
    """Merge this piece into the last buffered one if possible. Returns whether it was merged."""
    if not isinstance(last, _Pieces) or type(last.first) is not type(frame):
        return False
    if last.length + len(frame.text) > MAX_CHARACTERS:
        return False
    last.texts.append(frame.text)
    last.length += len(frame.text)
    return True

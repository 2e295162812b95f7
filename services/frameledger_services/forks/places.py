"""Positions of messages in a copy of a conversation, which differ from those that its frames name.

A copy omits retracted messages, and starts with the context before its first frame. So the copies are folded as they
are created, and each message is found by the frame that wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.evolve import State, evolve
from frameledger.evolve.changes import EraBegan, MessageAppended
from frameledger.frames import AnyFrame, LLMMessageRewriteFrame
from frameledger.ids import ContextId
from frameledger_services.forks.copies import Copies
from frameledger_services.store.replays import RecordedFrame, WrittenMessage


class PlacedCopies:
    """Creates copies of the frames of a conversation from one on, in order.

    A message of a retracted attempt is in the copy if a client rewrote it, so that it keeps its place. If models answer
    again, their answers are unknown: a rewrite is then copied only if its message existed before any answer could come,
    as in a mirror. This takes a hundred bytes for each message of an era.
    """

    def __init__(
        self, copies: Copies, opening: Sequence[AnyFrame], first: int, positions: Sequence[int]
    ) -> None:
        """`opening` has the first frames of the copy; their context has the messages that were at these `positions`
        before the frame of version `first`."""
        self._copies = copies
        self._first = first
        self._state = State(ContextId(copies.copy))
        self._places: dict[tuple[int, int], int] = {}
        """The position in the copy of each message, by the version that wrote it and its number there; for messages of
        the opening by 0 and their position in the original."""

        self._is_certain = True
        self._fold(opening, 0)
        self._places = {(0, position): place for place, position in enumerate(positions, start=1)}

    def of(self, recorded: RecordedFrame, frame: AnyFrame) -> list[AnyFrame]:
        """Returns the copy of a frame, followed by the starts of the calls that began with it; nothing if the frame is
        not copied. Call it once for each frame."""
        copied = self._copies.of(recorded, frame)
        if copied is None and recorded.keeps is not None:
            copied = self._copies.of_message(recorded, recorded.keeps)
        if isinstance(copied, LLMMessageRewriteFrame) and recorded.rewrites is not None:
            place = self._places.get(self._key(recorded.rewrites))
            copied = None if place is None else copied.model_copy(update={"position": place})
        if copied is None:
            return []
        frames = [copied, *self._copies.starts(recorded)]
        self._fold(frames, recorded.version)
        return frames

    def _key(self, written: WrittenMessage) -> tuple[int, int]:
        return (0, written.position) if written.version < self._first else (written.version, written.number)

    def _fold(self, frames: Sequence[AnyFrame], version: int) -> None:
        """Fold the copies of the frame of this version. They write the same messages as it did, in the same order."""
        number = 0
        for frame in frames:
            step = evolve(self._state, frame)
            self._state = step.state
            for change in step.changes:
                if isinstance(change, EraBegan):
                    self._places.clear()
                    self._is_certain = True
                elif isinstance(change, MessageAppended):
                    if self._is_certain:
                        self._places[version, number] = int(change.position)
                    number += 1
            began = any(isinstance(change, EraBegan) for change in step.changes)
            if self._copies.live and self._state.terms.mirror is None and not began:
                self._is_certain = False

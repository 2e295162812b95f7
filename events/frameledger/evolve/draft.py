"""The state while one frame changes it: mutable inside `evolve`, and never seen outside.

The rules (`turns`, `responses`, `calls`, `runs`, `history`) change a draft, so that each reads like its description.
They replace the parts that they change; the others pass unchanged into the next state.
"""

from __future__ import annotations

from frameledger.evolve import gaps
from frameledger.evolve.changes import (
    Change,
    EraBegan,
    Message,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
)
from frameledger.evolve.state import Call, Group, MessageCursor, Speech, State
from frameledger.ids import ContextId, Era, Position, RunId, ToolCallId, Version
from frameledger.json_values import size, size_of_text
from frameledger.values import replace


class Draft:
    """A state being changed, and the changes made so far, in order."""

    __slots__ = (
        "calls",
        "changed_version",
        "changes",
        "context_id",
        "erased",
        "own_groups",
        "own_open",
        "pace",
        "place",
        "rejected_turn",
        "runs",
        "speech",
        "terms",
        "turn",
        "version",
    )

    def __init__(self, before: State) -> None:
        self.context_id: ContextId = before.context_id
        self.version = Version(before.version + 1)
        self.place = before.place
        self.terms = before.terms
        self.turn = before.turn
        self.speech = before.speech
        self.calls = before.calls
        self.runs = before.runs
        self.erased = before.erased
        self.changed_version = before.changed_version
        self.pace = before.pace
        self.rejected_turn = before.rejected_turn
        self.changes: list[Change] = []
        # The open calls and the groups that this draft has made. No state has them yet, so they are changed in place:
        # copying them for each call would take minutes for a frame with thousands of calls.
        self.own_open: dict[ToolCallId, Call] | None = None
        self.own_groups: dict[str, Group] | None = None

    def frozen(self) -> State:
        return State(
            self.context_id,
            self.version,
            self.place,
            self.terms,
            self.turn,
            self.speech,
            self.calls,
            self.runs,
            self.erased,
            self.changed_version,
            self.pace,
            self.rejected_turn,
        )

    def append(self, message: Message, run_id: RunId | None = None) -> Position | None:
        """Append a message of the fold. Returns its position. In a mirror it is not written and has no position,
        because the program that keeps the history writes it (RA5.mirror)."""
        return None if self.terms.mirror is not None else self.take(message, run_id)

    def append_text(self, message: Message, run_id: RunId | None = None) -> Position | None:
        """Same as `append` for a message without floats; searching for one takes 0.1 us."""
        return None if self.terms.mirror is not None else self._add(message, size_of_text(message), run_id)

    def rewrite(self, position: Position, message: Message) -> None:
        """Replace an existing message of the fold, except in a mirror. The new message contains no float."""
        if self.terms.mirror is None:
            self._replace(position, message, size_of_text(message))

    def retract(self, position: Position) -> None:
        """Remove an existing message of the fold, except in a mirror."""
        if self.terms.mirror is None:
            self.put(position, None)

    def take(self, message: Message, run_id: RunId | None = None) -> Position:
        """Append a message of a client, also in a mirror."""
        return self._add(message, size(message), run_id)

    def put(self, position: Position, message: Message | None) -> None:
        """Replace the message at a position, also in a mirror; None removes it."""
        if message is None:
            self.place = gaps.emptied(self.place, position)
            self.changes.append(MessageEnded(position))
            self.changed_version = self.version
        else:
            self._replace(position, message, size(message))

    def begin_era(self) -> None:
        self.place = MessageCursor(Era(self.place.era + 1))
        self.changes.append(EraBegan(self.place.era))
        self.changed_version = self.version

    def keep_said(self) -> None:
        """Keep the last response's text as it is: the user has spoken since, or the history was replaced (R6.7)."""
        speech = self.speech
        if speech.said is not None:
            response = speech.response
            if response is not None and speech.said:
                response = replace(response, stays=True)
            self.speech = Speech(response, speech.thought, None, speech.bot_since)

    def _add(self, message: Message, length: int, run_id: RunId | None) -> Position:
        place = self.place
        position, total = place.next_position, place.bytes + length
        self.place = MessageCursor(place.era, Position(position + 1), place.gaps, place.fixed, total)
        self.changes.append(MessageAppended(position, message, run_id))
        self.changed_version = self.version
        return position

    def _replace(self, position: Position, message: Message, length: int) -> None:
        place = self.place
        total = place.bytes + length
        self.place = MessageCursor(place.era, place.next_position, place.gaps, place.fixed, total)
        self.changes.append(MessageReplaced(position, message))
        self.changed_version = self.version

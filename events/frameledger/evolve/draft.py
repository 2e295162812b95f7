"""The state while one frame changes it: mutable inside `evolve`, and never seen outside.

The rules (`turns`, `responses`, `calls`, `runs`, `history`) are written against a draft, so that each reads as what
it does. They replace the themes they touch; the others go on unchanged into the next state.
"""

from __future__ import annotations

from frameledger.evolve.changes import (
    Change,
    EraBegan,
    Message,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
)
from frameledger.evolve.state import Place, State
from frameledger.ids import ContextId, Era, Position, RunId, Version


class Draft:
    """A state in the making, and the changes made so far, in order."""

    __slots__ = (
        "calls",
        "changed_version",
        "changes",
        "context_id",
        "erased",
        "pace",
        "place",
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
        self.changes: list[Change] = []

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
        )

    def append(self, message: Message, run_id: RunId | None = None) -> Position:
        """Write a message at the end; return its position."""
        era, position = self.place.era, self.place.next_position
        self.place = Place(era, Position(position + 1))
        self.changes.append(MessageAppended(position, message, run_id))
        self.changed_version = self.version
        return position

    def rewrite(self, position: Position, message: Message) -> None:
        self.changes.append(MessageReplaced(position, message))
        self.changed_version = self.version

    def retract(self, position: Position) -> None:
        self.changes.append(MessageEnded(position))
        self.changed_version = self.version

    def begin_era(self) -> None:
        self.place = Place(Era(self.place.era + 1))
        self.changes.append(EraBegan(self.place.era))
        self.changed_version = self.version

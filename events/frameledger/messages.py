"""The messages of a context in order of position, and how the changes of a step are applied to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from frameledger.evolve.changes import (
    Change,
    ContextErased,
    EraBegan,
    Message,
    MessageAppended,
    MessageEnded,
    MessageReplaced,
)
from frameledger.ids import Position

_OF_MESSAGES = frozenset({MessageAppended, MessageReplaced, MessageEnded, EraBegan, ContextErased})


class Messages:
    """A context's messages by position; iterating yields them in order.

    Positions only grow within an era, so the order of insertion is the order of the list, and a change costs the same
    whatever the length. The messages themselves are shared and never changed.
    """

    def __init__(self, rows: Iterable[tuple[Position, Message]] = ()) -> None:
        self._rows: dict[Position, Message] = dict(rows)

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply the changes of a step, in order and each once; other kinds of changes affect no message."""
        rows = self._rows
        for change in changes:
            # Most changes affect no message. None has subclasses, so one look tells; `isinstance` would take several.
            if type(change) not in _OF_MESSAGES:
                continue
            if type(change) is MessageAppended or type(change) is MessageReplaced:
                rows[change.position] = change.message
            elif type(change) is MessageEnded:
                del rows[change.position]
            elif type(change) is EraBegan or type(change) is ContextErased:
                rows.clear()

    def rows(self) -> tuple[tuple[Position, Message], ...]:
        return tuple(self._rows.items())

    def __iter__(self) -> Iterator[Message]:
        return iter(tuple(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

"""Compares a list of messages with its previous copy. Pure: no clock, no Pipecat.

Pipecat's aggregators, Flows, a memory service, a summary and the application all write to one list. Their changes are
not derived from frames: `Mirror.changes` compares the list with its copy, in C where nothing has changed, and returns
the differences. `Positions` maps each message to its position on the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frameledger_services.pipecat.values import is_specific, to_json

MAX_REWRITES = 8
"""Up to this many changed or removed messages are published one by one; beyond it, the whole list is."""


@dataclass(frozen=True, slots=True)
class Appended:
    """These messages were appended."""

    messages: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The message at this index was replaced, or removed if `message` is None; later messages then move up."""

    index: int
    message: Any


@dataclass(frozen=True, slots=True)
class Replaced:
    """The whole list was replaced by these messages."""

    messages: tuple[Any, ...]


Change = Appended | Rewritten | Replaced


class Mirror:
    """The copy of a live list."""

    def __init__(self, messages: Iterable[Any] = (), *, known: bool = False) -> None:
        """`known`: these messages are on the log. Otherwise the first comparison returns the whole list."""
        self._copy: list[Any] = [_copy(message) for message in messages]
        self._known = known

    def changes(self, messages: Sequence[Any]) -> tuple[Change, ...]:
        """Returns the changes of the list since the last call, in the order in which to publish them. Values are
        compared as JSON: `1`, `1.0` and `true` differ, a tuple equals a list."""
        if self._known:
            if self._copy == messages:
                return ()
            messages = list(messages)
            compared = _difference(self._copy, messages)
            if compared is not None:
                self._copy, changes = compared
                return changes
        messages = list(messages)
        self._copy, self._known = [_copy(message) for message in messages], True
        return (Replaced(tuple(map(to_json, messages))),)


def _difference(old: list[Any], live: Sequence[Any]) -> tuple[list[Any], tuple[Change, ...]] | None:
    """Returns the next copy and the changes; None if there are too many. Copies only messages that differ, so a new
    message costs little in a long list."""
    count = len(old)
    if len(live) >= count:
        # Compared in C where messages were only appended.
        is_longer_only = len(live) > count and old == live[:count]
        differing = [] if is_longer_only else [place for place in range(count) if old[place] != live[place]]
        if len(differing) > MAX_REWRITES:
            return None
        now = list(old)
        for place in differing:
            now[place] = _copy(live[place])
        behind = live[count:]
        now += map(_copy, behind)
        rewritten = [Rewritten(place, to_json(live[place])) for place in differing]
        return now, (*rewritten, *([Appended(tuple(map(to_json, behind)))] if behind else ()))
    if count - len(live) > MAX_REWRITES:
        return None
    removed_places: list[int] = []
    for place, message in enumerate(old):
        at = place - len(removed_places)
        if at >= len(live) or message != live[at]:
            removed_places.append(place)
    if count - len(removed_places) != len(live):
        return None
    now = [one for place, one in enumerate(old) if place not in removed_places]
    return now, tuple(Rewritten(place - before, None) for before, place in enumerate(removed_places))


@dataclass(slots=True)
class Positions:
    """The messages on the log and their positions. A position is assigned once within an era and never changes."""

    messages: list[Any] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    next_position: int = 1

    def apply(self, change: Change) -> int | None:
        """Apply a change. Returns the position that it rewrites, if it rewrites one."""
        match change:
            case Appended(messages):
                self.messages.extend(messages)
                self.positions.extend(range(self.next_position, self.next_position + len(messages)))
                self.next_position += len(messages)
                return None
            case Replaced(messages):
                self.begin(messages)
                return None
            case Rewritten(index, None):
                del self.messages[index]
                return self.positions.pop(index)
            case Rewritten(index, message):
                self.messages[index] = message
                return self.positions[index]

    def begin(self, messages: Iterable[Any], positions: Iterable[int] | None = None) -> None:
        """Replace all messages: a new era, or with `positions` the continuation of one."""
        self.messages = list(messages)
        count = len(self.messages)
        self.positions = list(range(1, count + 1)) if positions is None else list(positions)
        self.next_position = max(self.positions, default=0) + 1


class _Exact:
    """A value that is neither text nor a container: equal to values of the same type and JSON. It is used only where
    the live list has no text, so a list of texts is compared in C."""

    __slots__ = ("_json", "_kind")

    def __init__(self, value: object) -> None:
        self._kind = type(value)
        self._json = to_json(value)

    def __eq__(self, other: object) -> bool:
        return self._kind is type(other) and self._json == to_json(other)

    __hash__ = None  # type: ignore[assignment]


class _Items:
    """A tuple: equal to a list or tuple of the same items."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = [_copy(one) for one in items]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | tuple) and self._items == list(other)

    __hash__ = None  # type: ignore[assignment]


class _Specific:
    """A provider-specific message."""

    __slots__ = ("_llm", "_message")

    def __init__(self, value: Any) -> None:
        self._llm = value.llm
        self._message = _copy(value.message)

    def __eq__(self, other: Any) -> bool:
        return is_specific(other) and self._llm == other.llm and self._message == other.message

    __hash__ = None  # type: ignore[assignment]


def _copy(value: Any) -> Any:
    """Returns a copy for the comparison `copy == live`, with the copy on the left."""
    if value is None or type(value) is str:
        return value
    if type(value) is dict:
        return {key: _copy(one) for key, one in value.items()}
    if type(value) is list:
        return [_copy(one) for one in value]
    if isinstance(value, tuple):
        return _Items(value)
    if isinstance(value, Mapping):
        return {key: _copy(value[key]) for key in value}
    if is_specific(value):
        return _Specific(value)
    return _Exact(value)

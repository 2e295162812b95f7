"""The comparison of a list of messages with the last copy of it. Pure: no clock, no Pipecat.

Pipecat's aggregators, Flows, a memory service, a summary and the application itself all write into one live list. What
they did is not guessed from frames but seen: `Mirror.changes` compares the list with its copy, in C where nothing has
changed, and says the difference; `Positions` knows under which position each message lies on the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frameledger_services.pipecat.values import is_specific, to_json

MOST_REWRITES = 8
"""Messages that differ or are gone are told one by one, up to so many; beyond, the whole list is said anew."""


@dataclass(frozen=True, slots=True)
class Appended:
    messages: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The message at this place of the list is another one, or, if None, gone; those behind it then move up."""

    index: int
    message: Any


@dataclass(frozen=True, slots=True)
class Replaced:
    messages: tuple[Any, ...]


Change = Appended | Rewritten | Replaced


class Mirror:
    """The copy of one live list."""

    def __init__(self, messages: Iterable[Any] = (), *, known: bool = False) -> None:
        """`known` says that these messages are on the log; else the first comparison says the whole list."""
        self._copy: list[Any] = [_copy(message) for message in messages]
        self._known = known

    def changes(self, messages: Sequence[Any]) -> tuple[Change, ...]:
        """What has become of the list since the last call, in the order in which it is to be told; nothing, if nothing
        has. Values are compared as JSON: `1`, `1.0` and `true` differ, a tuple is a list."""
        old = self._copy
        if self._known and old == messages:
            return ()
        now = [_copy(message) for message in messages]
        found = _difference(old, now, messages) if self._known else None
        if found is None:
            found = (Replaced(tuple(map(to_json, messages))),)
        self._copy, self._known = now, True
        return found


def _difference(old: list[Any], now: list[Any], live: Sequence[Any]) -> tuple[Change, ...] | None:
    """None if it takes too many words."""
    if len(now) >= len(old):
        differing = [place for place, one in enumerate(old) if one != live[place]]
        if len(differing) > MOST_REWRITES:
            return None
        rewritten = [Rewritten(place, to_json(live[place])) for place in differing]
        behind = tuple(map(to_json, live[len(old) :]))
        return (*rewritten, *([Appended(behind)] if behind else ()))
    if len(old) - len(now) > MOST_REWRITES:
        return None
    gone: list[int] = []
    for place, one in enumerate(old):
        at = place - len(gone)
        if at >= len(now) or one != live[at]:
            gone.append(place)
    if len(old) - len(gone) != len(now):
        return None
    return tuple(Rewritten(place - before, None) for before, place in enumerate(gone))


@dataclass(slots=True)
class Positions:
    """The messages as they lie on the log, and where: a position is given once within an era, and never moves."""

    messages: list[Any] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    next_position: int = 1

    def apply(self, change: Change) -> int | None:
        """Note a change. Returns the position that it rewrites, if it rewrites one."""
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
        """Start over with these: a new era, or with `positions` one that goes on."""
        self.messages = list(messages)
        count = len(self.messages)
        self.positions = list(range(1, count + 1)) if positions is None else list(positions)
        self.next_position = max(self.positions, default=0) + 1


class _Exact:
    """A number, or anything that is neither text nor a container: equal to what has the same JSON and type. Comparing
    two lists asks it only where the live one has no text, so a list of texts is compared in C."""

    __slots__ = ("_kind", "_said")

    def __init__(self, value: object) -> None:
        self._kind = type(value)
        self._said = to_json(value)

    def __eq__(self, other: object) -> bool:
        return self._kind is type(other) and self._said == to_json(other)

    __hash__ = None  # type: ignore[assignment]


class _Items:
    """A tuple, which is equal to what is the same array, whatever class that has."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = [_copy(one) for one in items]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list | tuple) and self._items == list(other)

    __hash__ = None  # type: ignore[assignment]


class _Specific:
    """A message of one provider."""

    __slots__ = ("_llm", "_message")

    def __init__(self, value: Any) -> None:
        self._llm = value.llm
        self._message = _copy(value.message)

    def __eq__(self, other: Any) -> bool:
        return is_specific(other) and self._llm == other.llm and self._message == other.message

    __hash__ = None  # type: ignore[assignment]


def _copy(value: Any) -> Any:
    """A copy to compare the live value with: `copy == live`, the copy on the left."""
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

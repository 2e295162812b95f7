"""Handlers that were registered with the tool lists of conversations, by function and conversation.

The newest list that has a function is last: its handler also serves conversations without one of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from frameledger_services.functions.registry_item import FunctionCallRegistryItem


@dataclass(frozen=True, slots=True)
class Advertised:
    """The handlers that a context's tool lists registered, as of one time."""

    names: frozenset[str]
    """Their functions, including those that were explicitly unregistered since."""

    items: Mapping[str, FunctionCallRegistryItem]
    newest: frozenset[str]
    """The functions for which no other context had a newer handler."""


class AdvertisedHandlers:
    """The handlers of a registry that tool lists registered. One that is explicitly unregistered is not registered
    again while its tool stays advertised."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, FunctionCallRegistryItem]] = {}
        self._kept_away: set[tuple[str, str]] = set()
        """Context and name of tools that were explicitly unregistered and are still advertised."""

    def __contains__(self, function_name: str | None) -> bool:
        return function_name in self._by_name

    def __iter__(self) -> Iterator[str]:
        """Yields the names of the functions that have a handler."""
        return iter(self._by_name)

    def items(self) -> list[FunctionCallRegistryItem]:
        return [item for contexts in self._by_name.values() for item in contexts.values()]

    def find(self, function_name: str, context_id: str | None) -> FunctionCallRegistryItem | None:
        """Returns the handler that was registered with this context's tools."""
        return self._by_name.get(function_name, {}).get(context_id or "")

    def newest(self, function_name: str) -> FunctionCallRegistryItem | None:
        return next(reversed(self._by_name.get(function_name, {}).values()), None)

    def add(self, context_id: str, function_name: str, item: FunctionCallRegistryItem) -> None:
        """Register a handler of a context's new list, unless it was explicitly unregistered."""
        if (context_id, function_name) not in self._kept_away:
            of_name = self._by_name.setdefault(function_name, {})
            # Inserted last, since it is the newest.
            of_name.pop(context_id, None)
            of_name[context_id] = item

    def remove(self, function_name: str) -> bool:
        """Explicitly unregister a function's handlers, those of all contexts. Returns whether there were any."""
        contexts = self._by_name.pop(function_name, {})
        self._kept_away |= {(context_id, function_name) for context_id in contexts}
        return bool(contexts)

    def keep(self, context_id: str, names: Iterable[str]) -> bool:
        """Unregister the handlers of a context's lists, except these names. Returns whether there were any."""
        kept_names = frozenset(names)
        self._kept_away -= {
            (context, name)
            for context, name in self._kept_away
            if context == context_id and name not in kept_names
        }
        removed = [
            name
            for name, contexts in self._by_name.items()
            if name not in kept_names and contexts.pop(context_id, None) is not None
        ]
        self._by_name = {name: contexts for name, contexts in self._by_name.items() if contexts}
        return bool(removed)

    def of(self, context_id: str) -> Advertised:
        """Returns what a context's lists registered, for `restore`."""
        items = {
            name: contexts[context_id] for name, contexts in self._by_name.items() if context_id in contexts
        }
        newest = frozenset(name for name in items if next(reversed(self._by_name[name])) == context_id)
        kept_away = {name for context, name in self._kept_away if context == context_id}
        return Advertised(frozenset(items.keys() | kept_away), items, newest)

    def restore(self, context_id: str, before: Advertised) -> None:
        """Undo what was added since `before`. Handlers that were explicitly unregistered since then stay
        unregistered."""
        for name, item in before.items.items():
            contexts = self._by_name.get(name, {})
            if context_id in contexts:
                contexts[context_id] = item
                if name not in before.newest:
                    # `add` made it the newest, which serves contexts without a handler of their own.
                    self._by_name[name] = {context_id: item, **contexts}
        self.keep(context_id, before.names)

    def contexts(self) -> frozenset[str]:
        """Returns the contexts whose lists registered handlers, or still have tools whose handlers were
        unregistered."""
        listed = {context_id for contexts in self._by_name.values() for context_id in contexts}
        return frozenset(listed | {context_id for context_id, _ in self._kept_away})

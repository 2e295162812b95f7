"""Compares the tools and the tool choice of the context with those on the log. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from frameledger.tools import tool_names
from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.values import to_json, tools_to_json

UNSET = "auto"
"""Published when a choice is removed: the default of providers."""


class Terms:
    """The tools and the tool choice on the log, and those of the live context at the last comparison."""

    def __init__(self, tools: Any = None, choice: Any = None) -> None:
        """`tools` and `choice` (JSON) are on the log already."""
        self._tools: list[Any] = list(tools or ())
        self._choice = choice
        self._more: list[Any] = []
        self._is_stale = False
        """Whether `_more` has changed since the last comparison."""

        self._live: tuple[Any, Any] = (None, None)
        self._listed: tuple[Any, Any] | None = None
        """Copies of the lists of the live tools; None if these have no lists."""

    def offer(self, more: Iterable[Any]) -> None:
        """Offer these tools from now on, besides those of the context: Pipecat's LLM service adds them to a request."""
        offered = list(more)
        if offered != self._more:
            self._more, self._is_stale = offered, True

    def changes(self, tools: Any, choice: Any) -> tuple[Fields, ...]:
        """Returns frames with the changes since the last call. Does not notice a tool that was modified in place,
        because it is called for nearly every frame."""
        known_tools, known_choice = self._live
        is_same = tools is known_tools and choice is known_choice and not self._is_stale
        if is_same and (self._listed is None or self._listed == (tools.standard_tools, tools.custom_tools)):
            return ()
        self._live, self._listed, self._is_stale = (tools, choice), None, False
        if hasattr(tools, "standard_tools"):
            self._listed = _copy(tools.standard_tools), _copy(tools.custom_tools)
        return (*self._of_tools(tools), *self._of_choice(choice))

    def _of_tools(self, tools: Any) -> Iterator[Fields]:
        offered = tools_to_json(tools, self._more)
        if offered != self._tools:
            self._tools = offered
            yield {"type": "LLMSetToolsFrame", "tools": offered}

    def _of_choice(self, choice: Any) -> Iterator[Fields]:
        known = choice if isinstance(choice, str | dict) else None
        if known is None and self._choice is not None:
            known = UNSET
        if known is not None and known != self._choice:
            self._choice = to_json(known)
            yield {"type": "LLMSetToolChoiceFrame", "tool_choice": self._choice}


def fits(choice: Any, tools: Any) -> bool:
    """Returns whether this choice is valid with these tools: there are tools, and the functions that it names are among
    them. Providers refuse other choices."""
    offered = tools_to_json(tools)
    return bool(offered) and set(_names(choice)) <= set(tool_names(offered))


def _names(choice: Any) -> Iterator[str]:
    """Yields the functions that a choice names: one, or a list of allowed ones."""
    if isinstance(choice, Mapping):
        if isinstance(choice.get("name"), str):
            yield choice["name"]
        for inside in choice.values():
            yield from _names(inside)
    elif isinstance(choice, list | tuple):
        for one in choice:
            yield from _names(one)


def _copy(listed: Any) -> Any:
    """Returns the list of a tools schema, or its lists by provider. An application can modify them in place."""
    if isinstance(listed, Mapping):
        return {key: _copy(one) for key, one in listed.items()}
    return list(listed) if isinstance(listed, list) else listed

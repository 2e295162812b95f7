"""Items of a session as messages of a context, and back: what comes out is what went in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LLM = "openai-responses"
"""The provider under whose name an item is kept that chat has no form for."""

_ROLES = ("user", "assistant", "system", "developer")


def message_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """The message that keeps an item: itself, if it is a plain text of somebody; else one of its provider's own."""
    plain = item.keys() == {"role", "content"} and item["role"] in _ROLES and isinstance(item["content"], str)
    return dict(item) if plain else {"llm": LLM, "message": dict(item)}


def item_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The item that a message keeps. A message that somebody else brought is given as it is."""
    kept = message.get("message")
    if message.keys() == {"llm", "message"} and message["llm"] == LLM and isinstance(kept, Mapping):
        return dict(kept)
    return dict(message)

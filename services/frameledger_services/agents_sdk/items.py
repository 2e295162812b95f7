"""Converts session items to messages of a context and back, without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LLM = "openai-responses"
"""The provider name of messages that hold items without a chat format."""

_ROLES = ("user", "assistant", "system", "developer")


def message_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the message for an item: the item itself if it is plain text, otherwise a provider-specific message.
    Raises TypeError if the item is not a mapping."""
    if not isinstance(item, Mapping):
        raise TypeError(
            f"{type(item).__name__} is not an item of a session: items are mappings, as `to_input_list()` returns them."
        )
    plain = item.keys() == {"role", "content"} and item["role"] in _ROLES and isinstance(item["content"], str)
    return dict(item) if plain else {"llm": LLM, "message": dict(item)}


def item_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the item of a message. Messages that did not come from the SDK are returned unchanged."""
    item = message.get("message")
    if message.keys() == {"llm", "message"} and message["llm"] == LLM and isinstance(item, Mapping):
        return dict(item)
    return dict(message)

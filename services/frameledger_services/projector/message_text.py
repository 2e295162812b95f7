"""The readable text of a message: views show this text and its speaker, and never read the message's JSON."""

from __future__ import annotations

from typing import Any

from frameledger_services.projector.row_values import clean

_OF_ITEMS = ("text", "refusal")


def readable(message: Any) -> tuple[str | None, str | None]:
    """Returns the speaker and the readable text of a message."""
    if "llm" in message and "message" in message:
        inner = message["message"]
        return clean(str(message["llm"])), _text_of_item(inner) if isinstance(inner, dict) else None
    role, content = message.get("role"), message.get("content")
    text = text_of_content(content)
    if text is None or not text.strip():
        # Providers send empty content together with calls.
        text = _text_of_calls(message.get("tool_calls")) or text
    return clean(role) if isinstance(role, str) else None, text


def text_of_content(content: Any, names: tuple[str, ...] = ("text",)) -> str | None:
    """Returns the text of a message's content, with the text of a part under the first of these names that it has.
    Returns None if there is no text, and for content of an unknown form."""
    if isinstance(content, str):
        return clean(content)
    if not isinstance(content, list):
        return None
    parts = (part for part in content if isinstance(part, dict))
    texts = (next((part[name] for name in names if name in part), None) for part in parts)
    return clean(" ".join(text for text in texts if isinstance(text, str))) or None


def _text_of_item(item: dict[str, Any]) -> str | None:
    """Returns the text of a message in a provider's own form, by the fields of OpenAI's items: a message's text, a call
    with its arguments, a call's output, or the summary of a reasoning item."""
    if isinstance(text := item.get("text"), str):
        return clean(text)
    match item.get("type"):
        case "function_call":
            return clean(f"{item.get('name')}({item.get('arguments')})")
        case "function_call_output":
            return text_of_content(item.get("output"), _OF_ITEMS)
        case "reasoning":
            return text_of_content(item.get("summary"), _OF_ITEMS)
        case _:
            return text_of_content(item.get("content"), _OF_ITEMS)


def _text_of_calls(tool_calls: Any) -> str | None:
    if not isinstance(tool_calls, list):
        return None
    functions = [call.get("function") for call in tool_calls if isinstance(call, dict)]
    called = [f"{one.get('name')}({one.get('arguments')})" for one in functions if isinstance(one, dict)]
    return clean(", ".join(called)) or None

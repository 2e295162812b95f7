"""Messages and request parameters of a context as text, for people. Accepts any message that a client can append."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frameledger.evolve.changes import Message
from frameledger.media import without_media
from frameledger.tools import tool_names


def speaker_and_text(message: Message) -> tuple[str, str]:
    """Returns a message's speaker and its text, without images and sounds."""
    if message.keys() == {"llm", "message"}:
        inner = message["message"]
        if isinstance(inner, Mapping) and inner.get("type") == "thought":
            return plain(message["llm"]), f"thought: {plain(inner.get('text'))}"
        return plain(message["llm"]), plain(inner)
    content = _content(message.get("content"))
    if message.get("role") == "tool":
        content = f"{plain(message.get('tool_call_id'))}: {content}"
    calls = message.get("tool_calls")
    called = [_called(call) for call in calls] if isinstance(calls, list | tuple) else []
    return plain(message.get("role")), "\n".join(filter(None, [content, *called]))


def request_terms(
    tools: Sequence[Mapping[str, Any]], tool_choice: Any, settings: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yields name and text of the tools, tool choice and settings of a context, as far as they are set."""
    if tools:
        yield "tools", ", ".join(tool_names(tools))
    if tool_choice is not None:
        yield "tool choice", plain(tool_choice)
    if settings:
        yield "settings", plain(settings)


def kept_by(mirror: str) -> str:
    """Returns the explanation of a context whose history another program writes."""
    return f"{mirror} writes the history; only what it publishes is stored"


def plain(value: Any) -> str:
    """Returns text unchanged, and any other JSON value as JSON on one line."""
    return value if isinstance(value, str) else json.dumps(without_media(value), ensure_ascii=False)


def _content(content: Any) -> str:
    if not isinstance(content, list | tuple):
        return "" if content is None else plain(content)
    return "\n".join(
        part["text"] if isinstance(part, Mapping) and isinstance(part.get("text"), str) else plain(part)
        for part in content
    )


def _called(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return plain(call)
    return f"{plain(call.get('id'))} = {plain(function.get('name'))}({plain(function.get('arguments'))})"

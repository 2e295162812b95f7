"""What the SDK's objects say, as values of frames: read by their attributes, so that no version is imported. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from frameledger.record import DecodeError
from frameledger.strict_json import loads

Fields = dict[str, Any]
"""A frame as JSON: its type and fields. Id and time are added when it is sent."""

MOST_BYTES = 256 * 1024
"""A text, arguments or a result beyond this are told by their size: the session has them anyhow, as items."""

_ROUTES = ("litellm/", "any-llm/")
"""How the SDK marks models that it reaches by another library."""


def model_of(agent: Any) -> tuple[str | None, str | None]:
    """Returns provider and model of an agent. The model's name has the provider before a slash, if it is not OpenAI; an
    agent that names none takes the SDK's own."""
    model = getattr(agent, "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    if not isinstance(name, str) or not name:
        return None, None if model is None else type(model).__name__
    for route in _ROUTES:
        name = name.removeprefix(route)
    provider, slash, rest = name.partition("/")
    return (provider, rest) if slash and provider and rest else ("openai", name)


def text_of(response: Any) -> str:
    """The words of an answer, without calls and thoughts."""
    parts = (part for item in response.output for part in _read(item, "content") or ())
    texts = (_read(part, "text") for part in parts if _read(part, "type") == "output_text")
    return "".join(text for text in texts if isinstance(text, str))


def finish_reason_of(response: Any) -> str | None:
    """Why a model stopped, as far as its answer shows it."""
    if any(_read(item, "type") == "function_call" for item in response.output):
        return "tool_calls"
    complete = all(_read(item, "status") in (None, "completed") for item in response.output)
    return "stop" if complete else None


def usage_of(response: Any) -> Fields | None:
    """What an answer used; None if its model says nothing of that."""
    usage = response.usage
    if not (usage.requests or usage.total_tokens):
        return None
    read, written = usage.input_tokens_details, usage.output_tokens_details
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": getattr(read, "cached_tokens", None),
        "cache_write_tokens": getattr(read, "cache_write_tokens", None),
        "reasoning_tokens": getattr(written, "reasoning_tokens", None),
    }
    return {name: count for name, count in counts.items() if type(count) is int and count >= 0}


def bounded(value: Any) -> Any:
    """A value as JSON that a frame can hold; in the place of a large one its size. What is no JSON is told as text, and
    so is JSON that a log refuses: too deep, or with a number that no double holds. Never raises."""
    try:
        encoded = json.dumps(value, allow_nan=False, default=_plain)
    except Exception:
        encoded = json.dumps(_text(value))
    if len(encoded) > MOST_BYTES:
        return {"omitted_bytes": len(encoded)}
    try:
        # One level down, as in a frame.
        return loads(b"[%b]" % encoded.encode())[0]
    except DecodeError:
        return encoded


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        # Deeper than Python looks, a number of more digits than it writes, or somebody's object that fails.
        return f"<{type(value).__name__}>"


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    return str(value)


def _read(value: Any, name: str) -> Any:
    """Of a model of pydantic's, or of a mapping: the SDK has both as items."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)

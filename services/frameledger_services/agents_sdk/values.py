"""Converts the SDK's objects to values of frames. Reads attributes, so that no version is imported. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from frameledger.record import DecodeError
from frameledger.strict_json import loads

Fields = dict[str, Any]
"""A frame as JSON: its type and fields. The id and the time are added when it is encoded."""

MAX_BYTES = 256 * 1024
"""Larger texts, arguments and results are recorded as their size. The session has them as items."""

_CALLS = {
    "function_call",
    "custom_tool_call",
    "computer_call",
    "shell_call",
    "local_shell_call",
    "apply_patch_call",
}
"""Items that the SDK answers with the output of a tool, unless the provider did."""

_OWN_CALLS = {
    "ComputerTool": "computer_call",
    "ShellTool": "shell_call",
    "LocalShellTool": "local_shell_call",
    "ApplyPatchTool": "apply_patch_call",
}
"""The SDK's own tools by the name of their class. It tells hooks about one call of each at a time, without its id."""

_ROUTES = ("litellm/", "any-llm/")
"""The SDK's prefixes of models that another library serves."""


def model_of(agent: Any) -> tuple[str | None, str | None]:
    """Returns the provider and model of an agent. A model name has its provider before a slash unless it is OpenAI.
    Returns None for the model of an agent that uses the SDK's default."""
    model = getattr(agent, "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    if not isinstance(name, str) or not name:
        return None, None if model is None else type(model).__name__
    for route in _ROUTES:
        name = name.removeprefix(route)
    provider, slash, rest = name.partition("/")
    return (provider, rest) if slash and provider and rest else ("openai", name)


def text_of(response: Any) -> str:
    """Returns the text of an answer, without calls and reasoning."""
    parts = (part for item in response.output for part in _read(item, "content") or ())
    texts = (_read(part, "text") for part in parts if _read(part, "type") == "output_text")
    return "".join(text for text in texts if isinstance(text, str))


def finish_reason_of(response: Any) -> str | None:
    """Returns the finish reason of an answer; None if it is unknown."""
    kinds = {_read(item, "type") for item in response.output}
    if any(kind in _CALLS and f"{kind}_output" not in kinds for kind in kinds):
        return "tool_calls"
    complete = all(_read(item, "status") in (None, "completed") for item in response.output)
    return "stop" if complete else None


def own_call_of(tool: Any) -> str | None:
    """Returns the type of the items that call this tool, if it is one of the SDK's own; otherwise None."""
    return next((_OWN_CALLS[one.__name__] for one in type(tool).__mro__ if one.__name__ in _OWN_CALLS), None)


def own_calls_of(response: Any) -> list[tuple[str, str, Any]]:
    """Returns the calls of the SDK's own tools in an answer: the type, the id of the call and its arguments."""
    return [
        (_read(item, "type"), str(_read(item, "call_id")), bounded(_asked_of(item)))
        for item in response.output
        if _read(item, "type") in _OWN_CALLS.values() and _read(item, "call_id")
    ]


def _asked_of(item: Any) -> Any:
    for name in ("action", "operation"):
        if (asked := _read(item, name)) is not None:
            return asked
    return {"actions": _read(item, "actions") or []}


def usage_of(response: Any) -> Fields | None:
    """Returns the token usage of an answer; None if the model reports none."""
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
    """Returns a value as JSON for a frame. A large value is replaced by its size. A value that is not JSON, is nested
    too deeply or has a number beyond a double becomes text. Never raises."""
    try:
        encoded = json.dumps(value, allow_nan=False, default=_plain)
    except Exception:
        encoded = json.dumps(_text(value))
    if len(encoded) > MAX_BYTES:
        return {"omitted_bytes": len(encoded)}
    try:
        # Nested one level, as in a frame.
        return loads(b"[%b]" % encoded.encode())[0]
    except DecodeError:
        return encoded


def _text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        # Nested beyond Python's recursion limit, too many digits, or an object whose `__str__` raises.
        return f"<{type(value).__name__}>"


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    return str(value)


def _read(value: Any, name: str) -> Any:
    """Returns an attribute of a pydantic model or an entry of a mapping: the SDK uses both as items."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)

"""Converts values of Pipecat's messages, tools and settings to JSON and back. Pure.

Pipecat's classes are recognized by their attributes and not imported: a provider-specific message has `llm` and
`message`, a tools schema has `standard_tools`.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from frameledger_services.omitted_media import MEDIA, PLAIN, mark

MEDIA_LIMIT = 1024 * 1024
"""Maximum characters of a `data:` URL. Longer ones are recorded as hash and size."""

# An object with only one of these names encodes a value that JSON cannot represent. An application's object with the
# same shape is wrapped, so that every value is restored unchanged.
BYTES = "$bytes"
_MARKS = frozenset({BYTES, MEDIA, PLAIN})
_FLOATS = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
DEEPEST = 100
"""Values nested deeper are recorded as their `repr`, because frames with them would be rejected."""


@dataclasses.dataclass(slots=True)
class InlineData:
    """Replaces a `Blob` of Google's SDK in a bookmark of a Gemini signature: Pipecat's adapter reads its attributes."""

    data: bytes
    mime_type: Any = None


def is_specific(value: object) -> bool:
    """Returns whether this is a provider-specific message (`LLMSpecificMessage`)."""
    return hasattr(value, "llm") and hasattr(value, "message") and not isinstance(value, Mapping)


def to_json(value: Any, media_limit: int = MEDIA_LIMIT, depth: int = 0) -> Any:
    """Returns a JSON value that shares nothing mutable with `value`. Never raises: values that JSON cannot represent
    become their `repr`. Bytes, provider-specific messages and long media have encodings that `from_json` reads."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        text = str(value.value) if isinstance(value, Enum) else str(value)
        return mark(text) if len(text) > media_limit and text.startswith("data:") else text
    if isinstance(value, float):
        return _FLOATS.get(repr(value), value)
    if depth > DEEPEST:
        return _repr(value)
    try:
        if isinstance(value, Mapping):
            plain = {_key(key): to_json(one, media_limit, depth + 1) for key, one in value.items()}
            return {PLAIN: plain} if len(plain) == 1 and next(iter(plain)) in _MARKS else plain
        if isinstance(value, list | tuple | set | frozenset):
            return [to_json(one, media_limit, depth + 1) for one in value]
        if isinstance(value, bytes | bytearray):
            return {BYTES: base64.b64encode(value).decode("ascii")}
        if isinstance(value, Enum):
            return to_json(value.value, media_limit, depth + 1)
        if is_specific(value):
            return {"llm": str(value.llm), "message": to_json(value.message, media_limit, depth + 1)}
        if callable(dump := getattr(value, "model_dump", None)):
            return to_json(dump(mode="python", exclude_none=True), media_limit, depth + 1)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return to_json(fields, media_limit, depth + 1)
    except Exception:
        # An object whose attributes raise, or a list that changes while it is read. Its type name is recorded, and the
        # next sync point compares it again.
        return f"<{type(value).__name__}>"
    return _repr(value)


def _key(key: object) -> str:
    return str(key.value if isinstance(key, Enum) else key)


def from_json(value: Any) -> Any:
    """Returns the value that was passed to `to_json`, except for media and values recorded as their `repr`."""
    if isinstance(value, list | tuple):
        return [from_json(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        ((name, inside),) = value.items()
        if name == BYTES and isinstance(inside, str):
            return base64.b64decode(inside)
        if name == PLAIN and isinstance(inside, Mapping):
            return {key: from_json(one) for key, one in inside.items()}
    return {key: from_json(one) for key, one in value.items()}


def specific_from_json(message: Any) -> Any:
    """Returns the content of a provider-specific message, in the form in which Pipecat's adapters read it."""
    value = from_json(message)
    match value:
        case {"bookmark": {"inline_data": {"data": bytes() as data, **about}} as bookmark}:
            bookmark["inline_data"] = InlineData(data, about.get("mime_type"))
    return value


def tools_to_json(tools: Any, more: Iterable[Any] = ()) -> list[Any]:
    """Returns the tools of a context in OpenAI's format, `more` tools, and its custom tools, each with the name of its
    provider, as `ToolsSchema.to_wire` writes them. `None` has no tools."""
    standard = getattr(tools, "standard_tools", None)
    if standard is None:
        standard = tools if isinstance(tools, list | tuple) else ()
    custom = getattr(tools, "custom_tools", None)
    by_provider = custom.items() if isinstance(custom, Mapping) else ()
    return [
        *(_tool(one) for one in _each(standard)),
        *(_tool(one) for one in more),
        *(
            {"llm": _key(name), "tool": to_json(one)}
            for name, several in by_provider
            for one in _each(several)
        ),
    ]


def _tool(tool: Any) -> Any:
    describe = getattr(tool, "to_default_dict", None)
    if callable(describe):
        return {"type": "function", "function": to_json(describe())}
    if isinstance(tool, Mapping):
        return to_json(tool)
    return {"type": "function", "function": {"name": str(getattr(tool, "__name__", type(tool).__name__))}}


def _each(values: object) -> Iterable[Any]:
    return values if isinstance(values, Iterable) else ()


def settings_of(service: Any) -> Any:
    """Returns the settings of a service, for which Pipecat 1.8 has no property."""
    return getattr(service, "settings", None) or getattr(service, "_settings", None)


def model_of(service: Any) -> str | None:
    """Returns the model of a service; None if its settings name none."""
    model = getattr(settings_of(service), "model", None)
    return model if isinstance(model, str) else None


def given_settings(settings: Any) -> dict[str, Any]:
    """Returns the given fields of a service's settings, as JSON."""
    fields = getattr(settings, "given_fields", None)
    try:
        values = fields() if callable(fields) else settings
    except Exception:
        return {}
    return {} if not isinstance(values, Mapping) else {str(key): to_json(one) for key, one in values.items()}


REQUEST_SETTINGS = (
    "model",
    "system_instruction",
    "temperature",
    "max_tokens",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "seed",
)
_PIPECAT_SETTINGS = (
    "filter_incomplete_user_turns",
    "user_turn_completion_config",
    "use_provider_thinking_default",
)


def request_settings(settings: Any) -> dict[str, Any]:
    """Returns the settings of a service that belong to a request. Settings that are not given are null, which resets
    earlier values. Settings that only concern Pipecat are null, too."""
    given_values = given_settings(settings)
    request = dict.fromkeys(_PIPECAT_SETTINGS) | {name: given_values.get(name) for name in REQUEST_SETTINGS}
    return request | {"extra": given_values.get("extra") or None}


def _repr(value: object) -> str:
    try:
        return repr(value)[:1000]
    except Exception:
        return f"<{type(value).__name__}>"

"""Compares JSON values, ignoring the order of keys and the notation of numbers."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any


def canonical(value: Any) -> str:
    """Returns the same text for all equal values: keys sorted, `1.0` as `1`. Text that is the JSON of an object counts
    as that object, because some providers return arguments as text, unless it is nested too deeply, which no other
    value of a frame is."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            parsed = json.loads(value)
            if isinstance(parsed, dict):
                return _written(parsed)
    return _written(value)


def _written(value: Any) -> str:
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain(one) for one in value]
    return value

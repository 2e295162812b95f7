"""Compares JSON as values: the order of keys and the notation of numbers do not matter."""

from __future__ import annotations

import json
from typing import Any


def canonical(value: Any) -> str:
    """Returns one text for all that say the same: keys sorted, `1.0` as `1`. Text that is itself JSON of an object is
    taken for that object, since some providers give arguments as text."""
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict):
            value = parsed
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

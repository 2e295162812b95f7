"""Untrusted JSON, read field by field: a field of the wrong type counts as absent.

Servers that imitate an API omit fields and put null into others; that must not break an answer. The SDKs' own models
check no more and take seven times as long for each token.
"""

from __future__ import annotations

import json
from typing import Any

JsonObject = dict[str, Any]

_MAX_COUNT = 2**53
"""Small enough that the sum of several fits into a field of a frame."""


def read(body: bytes) -> object:
    """Returns the value of JSON text; None if it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def an_object(value: object) -> JsonObject:
    """Returns the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[JsonObject]:
    """Returns the objects in a list; none for any other value."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    """Returns the value if it is text, else ""."""
    return value if isinstance(value, str) else ""


def number(value: object) -> int | None:
    """Returns the value if it is a whole number from 0 to the largest count that a server may report, else None."""
    return (
        value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT else None
    )

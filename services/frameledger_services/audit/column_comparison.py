"""Compares values of columns: JSON, and columns that older releases left null."""

from __future__ import annotations

import json

NULL_BEFORE = frozenset({"idempotency_key", "said_at", "is_copy"})
"""Columns that older releases left null."""


def was_null_before(name: str, message: bytes) -> bool:
    """Whether older releases left this column of this message null: they read no text of a provider's own items."""
    return name in NULL_BEFORE or (name == "text" and json.loads(message).keys() >= {"llm", "message"})


def same_json(was: str, expected: bytes) -> bool:
    """Whether two JSON texts have one value; the text itself may be that of an older release."""
    if was.encode() == expected:
        return True
    try:
        return json.dumps(json.loads(was), sort_keys=True) == json.dumps(json.loads(expected), sort_keys=True)
    except ValueError:
        return False

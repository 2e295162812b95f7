"""Frames that come again: one id, and the same said."""

from __future__ import annotations

import json


def is_duplicate(value: bytes, stored: bytes) -> bool:
    """Whether the value of a frame says what the stored value with its id says.

    `produced_at` does not count: who publishes a frame object anew, since the first try was not answered, may stamp it
    anew. Both are values that were decoded as frames.
    """
    return value == stored or _said(value) == _said(stored)


def _said(value: bytes) -> str:
    # As text again: to Python 1, 1.0 and true are equal.
    fields = json.loads(value)
    fields.pop("produced_at", None)
    return json.dumps(fields, sort_keys=True)

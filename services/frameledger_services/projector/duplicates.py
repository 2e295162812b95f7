"""Duplicates: frames with the same id and the same content."""

from __future__ import annotations

import json


def is_duplicate(value: bytes, stored: bytes) -> bool:
    """Whether a frame's value has the same content as the stored value with its id. Both have been decoded as frames.

    `produced_at` may differ: a publisher may set it again when it retries.
    """
    return value == stored or _content(value) == _content(stored)


def _content(value: bytes) -> str:
    # Compared as text: to Python 1, 1.0 and True are equal.
    fields = json.loads(value)
    fields.pop("produced_at", None)
    return json.dumps(fields, sort_keys=True)

"""Compares values of columns: JSON, and columns that older releases wrote differently."""

from __future__ import annotations

import json

from frameledger_services.projector.message_text import text_of_content

NULL_BEFORE = frozenset({"idempotency_key", "said_at", "is_copy"})
"""Columns that older releases left null."""


def was_written_before(name: str, was: object, message: bytes) -> bool:
    """Returns whether older releases wrote this value into this column of this message.

    They read no text of a provider's own items, and no calls besides content, even empty content. Such rows stay until
    their conversation is rebuilt for another reason.
    """
    if name != "text":
        return was is None and name in NULL_BEFORE
    fields = json.loads(message)
    if fields.keys() >= {"llm", "message"}:
        return was is None
    content = fields.get("content")
    return content is not None and was == text_of_content(content)


def same_json(was: str, expected: bytes) -> bool:
    """Returns whether two JSON texts have the same value. Older releases may have written another text of it."""
    if was.encode() == expected:
        return True
    try:
        return json.dumps(json.loads(was), sort_keys=True) == json.dumps(json.loads(expected), sort_keys=True)
    except (ValueError, RecursionError):
        return False

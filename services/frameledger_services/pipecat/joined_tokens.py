"""Joins queued tokens of an answer into one frame, since a frame costs the same however much text it has. Pure.

No message depends on where tokens begin: `mirror` finds the messages.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import Any

from frameledger_services.pipecat.capture import TOKENS, Item
from frameledger_services.pipecat.translate import name_of

MAX_JOINED = 50
MAX_CHARACTERS = 4_000
"""If a frame cannot be stored, or the broker rejects it, no more text than this is lost with it."""

WITHIN_NS = 50_000_000
"""Maximum time between the captures of the first and the last token of a frame."""


def take_joined(items: deque[Item]) -> Item:
    """Remove and return the oldest item. A token is joined with the following tokens that differ from it only in their
    text; the result has the number and the time of the first one."""
    sequence, ns, at, token, model = item = items.popleft()
    if not _is_joinable(token):
        return item
    kind = type(token)
    texts, characters = [token.text], len(token.text)
    while items and len(texts) < MAX_JOINED:
        _, later_ns, later_at, later, _ = items[0]
        if type(later) is not kind or later_at != at or not _are_alike(token, later):
            break
        characters += len(later.text)
        if later_ns - ns > WITHIN_NS or characters > MAX_CHARACTERS:
            break
        texts.append(later.text)
        items.popleft()
    if len(texts) == 1:
        return item
    joined = copy(token)
    joined.text = "".join(texts)
    return sequence, ns, at, joined, model


def _is_joinable(frame: Any) -> bool:
    """Returns whether it is a token that contains its own spaces. The separator of other tokens depends on the
    reader."""
    kind: type = type(frame)
    return name_of(kind) == TOKENS and type(frame.text) is str and bool(frame.includes_inter_frame_spaces)


def _are_alike(token: Any, later: Any) -> bool:
    """Returns whether another token of the same class differs from a joinable one at most in its text. Called for each
    token of a dense stream."""
    return (
        type(later.text) is str
        and bool(later.includes_inter_frame_spaces)
        and later.append_to_context == token.append_to_context
        and later.skip_tts == token.skip_tts
    )

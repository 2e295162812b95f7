"""Joins tokens of an answer that wait together into one frame: a frame costs the same, however much text it has. Pure.

No message depends on where tokens begin: `mirror` finds the messages.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from typing import Any

from frameledger_services.pipecat.capture import TOKENS, Item
from frameledger_services.pipecat.translate import name_of

MOST_JOINED = 20
MOST_CHARACTERS = 4_000
"""A token that cannot be stored, or that the broker rejects, takes no more text with it."""

WITHIN_NS = 50_000_000
"""How much later than its first token the last one of a frame may be captured."""


def take_joined(items: deque[Item]) -> Item:
    """Removes and returns the oldest item. A token comes with those directly behind it that differ from it in nothing
    but their text, as one that has the number and the time of the first."""
    sequence, ns, at, token, model = item = items.popleft()
    form = _form(item)
    if form is None:
        return item
    texts, characters = [token.text], len(token.text)
    while items and len(texts) < MOST_JOINED and _form(items[0]) == form:
        _, later_ns, _, later, _ = items[0]
        characters += len(later.text)
        if later_ns - ns > WITHIN_NS or characters > MOST_CHARACTERS:
            break
        texts.append(later.text)
        items.popleft()
    if len(texts) == 1:
        return item
    joined = copy(token)
    joined.text = "".join(texts)
    return sequence, ns, at, joined, model


def _form(item: Item) -> tuple[Any, ...] | None:
    """Returns what tokens of one frame have in common; None for an item that is no token. Words that do not bring their
    spaces are not joined: it depends on their reader what is put between them."""
    _, _, at, frame, _ = item
    kind: type = type(frame)
    if name_of(kind) != TOKENS or type(frame.text) is not str or not frame.includes_inter_frame_spaces:
        return None
    return at, kind, frame.append_to_context, frame.skip_tts

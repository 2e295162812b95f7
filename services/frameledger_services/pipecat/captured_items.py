"""The queue of captured items: Pipecat's event loop appends, and the publishing thread takes. Pure.

In a dense stream a token is appended without a number and a time, because these would take half of its cost. It is
joined with the tokens before it: a frame costs the same however much text it has. No message depends on where tokens
begin, since `mirror` finds the messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from copy import copy
from itertools import count
from typing import Any

from frameledger_services.pipecat.captured_frame import ASSISTANT, Model
from frameledger_services.pipecat.numbered_ids import UNNUMBERED
from frameledger_services.pipecat.translate import name_of

Item = tuple[int, int, str, Any, Model | None]
"""Sequence, nanoseconds since 1970, capture point, captured object, and its model if captured at a model service."""

TOKENS = "LLMTextFrame"

MAX_JOINED = 50
MAX_CHARACTERS = 4_000
"""If a frame cannot be stored, or the broker rejects it, no more text than this is lost with it."""

WITHIN_NS = 50_000_000
"""Maximum time between the captures of the first and the last token of a frame."""

BACKLOG = 12
"""More queued items than this are a backlog: the stream is dense, and its tokens share frames."""


class CapturedItems(deque[Any]):
    """The captured items in order; appending and taking are atomic, as in every deque.

    An entry is an `Item`, or a frame with streamed text that was captured at the assistant's aggregator while others
    were queued.
    """

    def __init__(self, entries: Iterable[Any] = ()) -> None:
        super().__init__(entries)
        self.next_sequence = count().__next__
        self._number_later = count(UNNUMBERED).__next__
        self._latest_ns = 0
        """The capture time of the latest item that was taken."""

    @property
    def oldest_ns(self) -> int:
        """The capture time of the oldest entry, at most a few tokens too early. Raises IndexError if there is none."""
        oldest = self[0]
        return oldest[1] if type(oldest) is tuple else self._latest_ns

    def take(self, *, joined: bool) -> Item:
        """Remove and return the oldest item; with `joined`, a token together with the following tokens that differ from
        it only in their text. The result has the number and the time of the first one."""
        entry = self.popleft()
        if type(entry) is not tuple:
            entry = (self._number_later(), self._latest_ns, ASSISTANT, entry, None)
        self._latest_ns = entry[1]
        return self._joined(entry) if joined and _is_joinable(entry[3]) else entry

    def _joined(self, first: Item) -> Item:
        sequence, ns, at, token, model = first
        kind = type(token)
        texts, characters = [token.text], len(token.text)
        while self and len(texts) < MAX_JOINED:
            entry = self[0]
            _, later_ns, later_at, later, _ = (
                entry if type(entry) is tuple else (0, self._latest_ns, ASSISTANT, entry, None)
            )
            if type(later) is not kind or later_at != at or not _are_alike(token, later):
                break
            characters += len(later.text)
            if later_ns - ns > WITHIN_NS or characters > MAX_CHARACTERS:
                break
            self._latest_ns = later_ns
            texts.append(later.text)
            self.popleft()
        if len(texts) == 1:
            return first
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

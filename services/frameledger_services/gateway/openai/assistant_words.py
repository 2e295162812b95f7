"""Compares what the assistant said with a client's copy of it (`history`, rules 3 to 5).

The functions are called for each sent message, and both histories may have thousands: the time of a call is
proportional to the size of its result, and not to that of the histories.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from frameledger import async_tool_messages
from frameledger_services.gateway.openai.seen_messages import JsonObject, is_words, squeezed, text_of

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Words:
    """A stored message with words of the assistant."""

    place: int
    """Index in the stored history."""

    text: str
    """With whitespace squeezed (`seen_messages.squeezed`)."""

    is_cut: bool
    """Whether its answer was interrupted or failed."""

    may_be_left_out: bool
    """Whether it stands beside a call of the client's own functions. The client may lack it."""

    is_report: bool = False
    """Whether it follows the report of a background call."""

    @property
    def may_be_missing(self) -> bool:
        """Whether a client may lack it."""
        return self.is_cut or self.is_report


class SaidWords:
    """The words of the assistant in a stored history, by their places."""

    def __init__(self, held: Iterable[tuple[JsonObject, bool, bool]]) -> None:
        """`held` has each message, whether its answer was cut, and whether the client may leave it out."""
        self._words: list[Words] = []
        self._users: list[int] = []
        self._reports: list[int] = []
        for place, (message, is_cut, may_be_left_out) in enumerate(held):
            if message.get("role") == "user":
                self._users.append(place)
                continue
            payload = async_tool_messages.parse_message(message)
            if payload is not None and payload.kind != "started":
                self._reports.append(place)
            if is_words(message) and (text := squeezed(text_of(message))):
                self._words.append(Words(place, text, is_cut, may_be_left_out))
        self._places = [one.place for one in self._words]
        self._kept = [one.place for one in self._words if not one.may_be_left_out]
        self._completed = [one.place for one in self._words if not (one.is_cut or one.may_be_left_out)]

    def region(self, at: int) -> list[Words]:
        """Returns the words from `at` up to the next user's message."""
        end, report = _first(self._users, at), _first(self._reports, at)
        return [replace(one, is_report=one.place > report) for one in self._between(at, end)]

    def behind_unsent(self, at: int, *, is_all: bool = False) -> int:
        """Returns the index after the words of the region from `at` if the client may lack them, else `at`. `is_all`
        says that the client has nothing behind them: then it lacks no answer that was cut, but wants another."""
        end = _first(self._users, at)
        if is_all and _first(self._kept, at) < end:
            return at
        if _first(self._completed, at) < min(end, _first(self._reports, at)):
            return at
        number = bisect_left(self._places, end)
        return max(at, self._places[number - 1] + 1) if number else at

    def cut_places(self, begin: int, end: int) -> list[int]:
        """Returns the places from `begin` up to `end` of words that were cut."""
        return [one.place for one in self._between(begin, end) if one.is_cut]

    def _between(self, begin: int, end: int) -> Sequence[Words]:
        return self._words[bisect_left(self._places, begin) : bisect_left(self._places, end)]


def cuts(words: Sequence[Words], sent: str) -> Mapping[int, str | None] | None:
    """Returns the places of the messages whose text has another length at the client, each with the client's text, or
    None if it has no text of it. Returns None if the sent text is not that of these messages, nor that of those which
    may not be left out."""
    found = _cuts(words, sent)
    kept = [one for one in words if not one.may_be_left_out]
    return found if found is not None or len(kept) == len(words) else _cuts(kept, sent)


def _cuts(words: Sequence[Words], sent: str) -> Mapping[int, str | None] | None:
    # Each word is followed by a space, even the last one: a message ends where a word does.
    text = " ".join([*sent.split(), ""])
    at = matched = 0
    """How much is matched, in characters and in those of them that are not spaces."""

    cut: dict[int, str | None] = {}
    if_all_is_of_one: tuple[int, int, int] | None = None
    """The last message to which all of the rest may belong: the number of entries in `cut` before it, its place, and
    the number of characters before it that are not spaces."""

    last_needed = max((number for number, piece in enumerate(words) if not piece.may_be_missing), default=-1)
    for number, piece in enumerate(words):
        may_be_last = last_needed <= number
        end = at + len(piece.text)
        if text.startswith(piece.text, at) and (text[end] == " " or not piece.is_cut):
            if piece.is_cut and may_be_last:
                if_all_is_of_one = len(cut), piece.place, matched
            # A client that joins the pieces of its streams has no space there.
            at = end + (text[end] == " ")
            matched += len(piece.text) - piece.text.count(" ")
        elif at < len(text) and piece.is_cut and _is_one_the_beginning(piece.text, text, at):
            cut[piece.place] = _behind(sent, matched)
            at = len(text)
        elif at < len(text) and piece.is_cut:
            cut[piece.place] = None
        elif not (may_be_last and piece.may_be_missing):
            return _all_of_one(cut, if_all_is_of_one, sent)
    return cut if at == len(text) else _all_of_one(cut, if_all_is_of_one, sent)


def _is_one_the_beginning(stored: str, text: str, at: int) -> bool:
    """Whether one of the two begins with the other: the stored text, and `text` from `at` on without its last space."""
    is_shorter = len(text) - 1 - at <= len(stored)
    return text.startswith(stored, at) or (is_shorter and stored.startswith(text[at:-1]))


def _all_of_one(
    cut: Mapping[int, str | None], one: tuple[int, int, int] | None, sent: str
) -> Mapping[int, str | None] | None:
    if one is None:
        return None
    count, place, matched = one
    return {**dict(islice(cut.items(), count)), place: _behind(sent, matched)}


def _behind(sent: str, count: int) -> str:
    """Returns the text after this number of characters that are not whitespace; it has more of them."""
    for word in _WORD.finditer(sent):
        if count < (length := word.end() - word.start()):
            return sent[word.start() + count :].strip()
        count -= length
    return ""


def _first(places: Sequence[int], at: int) -> int:
    """Returns the first of the places from `at` on, or a place after all others if there is none."""
    number = bisect_left(places, at)
    return places[number] if number < len(places) else sys.maxsize

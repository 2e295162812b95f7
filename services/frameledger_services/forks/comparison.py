"""Compares two answers, word by word and call by call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

from frameledger_services.forks.answer import AnswerCall, ModelAnswer
from frameledger_services.forks.canonical import canonical

Kind = Literal["same", "gone", "new"]

_WORDS = re.compile(r"\S+\s*")
"""A word with the space after it, so that consecutive differing words are one piece."""

EXACT_WORDS = 4_000
"""Maximum words of an exact alignment. In longer texts frequent words are ignored, because the time is quadratic."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of text that is in both answers, only in the first (`gone`), or only in the second (`new`)."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """The differences between an original and its rerun."""

    text: tuple[TextPiece, ...]
    same_text: bool
    same_calls: bool
    """Whether both call the same functions with equal arguments in the same order."""

    @property
    def same(self) -> bool:
        return self.same_text and self.same_calls


def compare(original: ModelAnswer, rerun: ModelAnswer) -> AnswerComparison:
    """Returns the differences of a rerun from its original."""
    pieces = word_diff(original.text, rerun.text)
    return AnswerComparison(
        pieces,
        all(piece.kind == "same" for piece in pieces),
        [_named(call) for call in original.calls] == [_named(call) for call in rerun.calls],
    )


def word_diff(before: str, after: str) -> tuple[TextPiece, ...]:
    """Returns both texts as pieces in order. Ignores whitespace at the ends and its kind between words; the pieces have
    the later text's."""
    old, new = _words(before), _words(after)
    matcher = SequenceMatcher(
        None,
        [word.rstrip() for word in old],
        [word.rstrip() for word in new],
        autojunk=len(old) > EXACT_WORDS,
    )
    pieces: list[TextPiece] = []
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if kind == "equal":
            _add(pieces, "same", new[new_from:new_to])
            continue
        _add(pieces, "gone", old[old_from:old_to])
        _add(pieces, "new", new[new_from:new_to])
    # The last word of a text has no space after it, and may not be the last one here.
    apart = [
        TextPiece(one.kind, one.text if one.text[-1].isspace() else f"{one.text} ") for one in pieces[:-1]
    ]
    return (*apart, *pieces[-1:])


def _add(pieces: list[TextPiece], kind: Kind, words: Sequence[str]) -> None:
    if words:
        pieces.append(TextPiece(kind, "".join(words)))


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.strip())


def _named(call: AnswerCall) -> tuple[str, str]:
    return call.function_name, canonical(call.arguments)

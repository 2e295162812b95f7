"""Words that are in no message yet, until a message accounts for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

OPEN, ENDED, CUT = "open", "ended", "cut"
"""States of an answer or turn: words may still come; later words belong to the next one; later words are dropped."""


@dataclass(slots=True)
class UnrecordedWords:
    """Words of one role.

    Pipecat's aggregator writes all of its words into one message, and starts again with none. Not all captured words
    reach the aggregator, and not every message of the role comes from it. An appended message means:

    | the message has                   | its answer or turn | so of the words                         | there remain |
    | --------------------------------- | ------------------ | --------------------------------------- | ------------ |
    | all words                         | any                | all are in it                           | none         |
    | some, and no other text           | open, ended        | earlier ones were dropped (MinWords...) | later ones   |
    | some, and no other text           | cut                | the others were dropped                 | none         |
    | other text (redacted, translated) | ended, cut         | all are in it in another form           | none         |
    | other text                        | open               | none: the application wrote it          | all          |
    | parts, and not these words        | any                | none: the application wrote it          | all          |

    The first and the third row hold for the messages of an update, too. Its other messages can be older than the words.
    """

    pieces: list[tuple[str, bool]] = field(default_factory=list)
    state: str = OPEN
    is_complete: bool = False
    """Whether there cannot be words before the first frame that was taken."""

    _known_plain: str | None = None
    """An update can have many messages while many words wait."""

    def add(self, text: str, exactly: bool) -> None:
        self.pieces.append((text, exactly))
        self.state, self._known_plain = OPEN, None

    def begin(self) -> None:
        """Begin the next answer. Words that remain of an ended one were dropped."""
        if self.state != OPEN or not self.pieces:
            self.clear()

    def clear(self) -> None:
        self._keep([])
        self.state, self.is_complete = OPEN, True

    def remove_recorded(self, content: Any, *, is_appended: bool) -> None:
        """Remove the words that a message with this content accounts for."""
        text, whole = _plain(_text_of(content)), self._plain_text
        if not text or not whole:
            self.is_complete = self.is_complete or (is_appended and bool(text))
        elif whole in text:
            self.clear()
        elif count := self._count_until_end_of(text):
            later = self.pieces[count:]
            if self.state == CUT:
                self.clear()
            elif is_appended:
                self.clear()
                self._keep(later)
        elif is_appended and isinstance(content, str) and self.state != OPEN:
            self.clear()

    def _count_until_end_of(self, text: str) -> int:
        """Returns the number of pieces up to the end of those that form this text; 0 if none do."""
        whole, ends = self._plain_text, [0]
        at = whole.find(text)
        if at >= 0:
            ends += accumulate(len(_plain(piece)) for piece, _ in self.pieces)
        while at >= 0:
            if at in ends and at + len(text) in ends:
                return ends.index(at + len(text))
            at = whole.find(text, at + 1)
        return 0

    def _keep(self, pieces: list[tuple[str, bool]]) -> None:
        self.pieces, self._known_plain = pieces, None

    @property
    def _plain_text(self) -> str:
        if self._known_plain is None:
            self._known_plain = "".join(_plain(piece) for piece, _ in self.pieces)
        return self._known_plain

    @property
    def text(self) -> str:
        text, before = "", True
        for piece, exactly in self.pieces:
            seam = text and not (exactly and before) and not text[-1].isspace() and not piece[:1].isspace()
            text += f" {piece}" if seam else piece
            before = exactly
        return text.strip()


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _plain(text: str) -> str:
    return "".join(text.split())

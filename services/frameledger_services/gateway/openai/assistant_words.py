"""What the assistant said, compared with the text that a client sends of it (`history`, rules 3 to 5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frameledger_services.gateway.openai.seen_messages import squeezed

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Words:
    """A stored message with words of the assistant."""

    place: int
    """In the history that is stored."""

    text: str
    """Squeezed."""

    is_cut: bool
    """It is of an answer that was interrupted or failed."""

    is_report: bool
    """A background call reported before it."""

    @property
    def may_be_missing(self) -> bool:
        """Whether a client need not have it."""
        return self.is_cut or self.is_report


def cuts(words: Sequence[Words], sent: str) -> Mapping[int, str | None] | None:
    """Returns the places of the messages that the client has in another length than they are stored, each with the text
    that it has, or None if it has nothing of it. None if the text that was sent is not what these messages say."""
    cut: dict[int, str | None] = {}
    if_all_is_of_one: dict[int, str | None] | None = None
    begins = [word.start() for word in _WORD.finditer(sent)]
    matched = 0
    for number, piece in enumerate(words):
        rest = sent[begins[matched] :] if matched < len(begins) else ""
        left = squeezed(rest)
        may_be_last = all(later.may_be_missing for later in words[number + 1 :])
        if left == piece.text or left.startswith(f"{piece.text} "):
            matched += piece.text.count(" ") + 1
            if piece.is_cut and may_be_last:
                if_all_is_of_one = {**cut, piece.place: rest.strip()}
        elif left and piece.is_cut and (piece.text.startswith(left) or left.startswith(piece.text)):
            matched = len(begins)
            cut[piece.place] = rest.strip()
        elif left and piece.is_cut:
            cut[piece.place] = None
        elif not (may_be_last and piece.may_be_missing):
            return if_all_is_of_one
        else:
            break
    return cut if matched == len(begins) else if_all_is_of_one

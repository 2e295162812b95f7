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
    taken = 0
    for number, one in enumerate(words):
        rest = sent[begins[taken] :] if taken < len(begins) else ""
        left = squeezed(rest)
        may_be_last = all(later.may_be_missing for later in words[number + 1 :])
        if left == one.text or left.startswith(f"{one.text} "):
            taken += one.text.count(" ") + 1
            if one.is_cut and may_be_last:
                if_all_is_of_one = {**cut, one.place: rest.strip()}
        elif left and one.is_cut and (one.text.startswith(left) or left.startswith(one.text)):
            taken = len(begins)
            cut[one.place] = rest.strip()
        elif left and one.is_cut:
            cut[one.place] = None
        elif not (may_be_last and one.may_be_missing):
            return if_all_is_of_one
        else:
            break
    return cut if taken == len(begins) else if_all_is_of_one

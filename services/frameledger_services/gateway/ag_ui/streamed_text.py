"""Text of a response as it streams: pieces in, deltas out that together are the message that will be stored.

What is stored is trimmed, has the spaces of R2.2 at its seams, and no half of a character (`evolve.text`). So space at
an end, and a half that may still meet its other half, are held back until it is known what follows.
"""

from __future__ import annotations

from frameledger.evolve.text import Text, plus, whole
from frameledger.surrogates import is_first_half


class StreamedText:
    """One text. `is_begun` once it has more than whitespace."""

    def __init__(self) -> None:
        self._last: Text | None = None
        self._held = ""
        self.is_begun = False

    def add(self, piece: str, carries_spaces: bool) -> str:
        """Take the next piece. Returns the part of the text that is now certain and was not returned before."""
        after = plus(self._last, piece, carries_spaces)
        if after is None or after is self._last:
            return ""
        # Only the last piece decides on a seam.
        self._last = Text(None, after.piece, carries_spaces, after.length)
        held = self._held + after.piece
        if not self.is_begun:
            held = held.lstrip()
        end = len(held)
        while end and (held[end - 1].isspace() or is_first_half(held[end - 1])):
            end -= 1
        self._held = held[end:]
        return self._certain(whole(held[:end]))

    def end(self) -> str:
        """Returns the rest, when nothing follows."""
        left, self._held = whole(self._held).rstrip(), ""
        return self._certain(left)

    def _certain(self, delta: str) -> str:
        self.is_begun = self.is_begun or bool(delta)
        return delta

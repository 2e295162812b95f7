"""Text of a response while it streams: pieces in, deltas out, which together are the message that will be stored.

The stored text is trimmed, has the spaces of R2.2 between its pieces, and no unpaired surrogate (`evolve.text`). So
space at an end, and a surrogate whose other half may still come, are held back until the next piece.
"""

from __future__ import annotations

from frameledger.evolve.text import Text, plus, whole
from frameledger.surrogates import is_first_half


class StreamedText:
    """One text. `is_begun` is true once it has more than whitespace."""

    def __init__(self) -> None:
        self._last: Text | None = None
        self._held = ""
        self.is_begun = False

    def add(self, piece: str, carries_spaces: bool) -> str:
        """Take the next piece. Returns the text that is final now and was not returned before."""
        after = plus(self._last, piece, carries_spaces)
        if after is None or after is self._last:
            return ""
        # Only the last piece decides whether a space is added before the next one.
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
        """Returns the rest of the text. Nothing follows it."""
        left, self._held = whole(self._held).rstrip(), ""
        return self._certain(left)

    def _certain(self, delta: str) -> str:
        self.is_begun = self.is_begun or bool(delta)
        return delta

"""Text that arrives in pieces, kept as linked pieces so that one more piece costs the same at any length."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import core_schema

_HALF = re.compile("[\ud800-\udfff]")


@dataclass(slots=True, eq=False, repr=False)
class Text:
    """The pieces heard or said so far, newest first.

    The space between two pieces is added when the later piece arrives, so `piece` already contains it. Equality is that
    of the joined text: a text that was stored and read again is one piece long and still the same text.
    """

    before: Text | None
    piece: str
    carries_spaces: bool
    length: int
    """The number of characters of all pieces together."""

    def raw(self) -> str:
        """The pieces joined; halves of surrogate pairs are unchanged."""
        pieces = []
        text: Text | None = self
        while text is not None:
            pieces.append(text.piece)
            text = text.before
        pieces.reverse()
        return "".join(pieces)

    def joined(self) -> str:
        """Returns the pieces joined, with halves of surrogate pairs combined."""
        return whole(self.raw())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Callable[[Any], Any]) -> Any:
        """Validates the stored form, one piece (`stored`): `[text, carries_spaces]`. Anything else is a validation
        error."""
        return core_schema.no_info_plain_validator_function(
            _from_stored,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda text: [text.raw(), text.carries_spaces]
            ),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Text):
            return NotImplemented
        return self.carries_spaces == other.carries_spaces and self.joined() == other.joined()

    def __hash__(self) -> int:
        return hash((self.joined(), self.carries_spaces))

    def __repr__(self) -> str:
        return f"Text({self.raw()!r}, carries_spaces={self.carries_spaces})"


def plus(text: Text | None, piece: str, carries_spaces: bool) -> Text | None:
    """Returns `text` with one more piece (R2.2); an empty piece adds nothing.

    Pieces that contain their own spaces are joined unchanged. In all other cases one space is added, unless there is
    whitespace on either side.
    """
    if not piece:
        return text
    if text is not None and not (carries_spaces and text.carries_spaces) and needs_space(text.piece, piece):
        piece = " " + piece
    return Text(text, piece, carries_spaces, len(piece) + (0 if text is None else text.length))


def needs_space(left: str, right: str) -> bool:
    return not (left[-1].isspace() or right[0].isspace())


def trimmed(text: Text | None) -> str:
    """Returns the whole text without outer whitespace; "" if there is none."""
    return "" if text is None else text.joined().strip()


def whole(text: str) -> str:
    """Returns `text` with adjacent halves of surrogate pairs combined, and any remaining half written as its escape.

    Clients cut an emoji between two tokens, so a piece may legally be half a character (see `surrogates`); stored text
    may not.
    """
    if text.isascii() or not _HALF.search(text):
        return text
    met = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _HALF.sub(lambda half: f"\\u{ord(half.group()):04x}", met)


def _from_stored(stored: object) -> Text | None:
    match stored:
        case Text():
            return stored
        case [str(text), bool(carries_spaces)]:
            return plus(None, text, carries_spaces)
        case _:
            raise ValueError("a stored text is [text, carries_spaces]")

"""Escapes control characters, which a terminal would execute."""

from __future__ import annotations


def escaped(text: str, *, but: str = "") -> str:
    """Returns the text with each character that is not printable as its Python escape, except those in `but`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in but else repr(one)[1:-1] for one in text)

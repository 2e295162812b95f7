"""Lone surrogates: escapes in JSON text without the other half of their character.

A client that splits text between two UTF-16 units sends `"\\ud83d"` in one frame and `"\\ude00"` in the next. That is
legal JSON, but not text: neither UTF-8 nor a database can represent it.
"""

import re

# First a run of escaped backslashes, so that what follows is not taken for an escape; then a whole pair; then a half.
# In valid JSON only hexadecimal digits follow `\u`.
_ESCAPE = re.compile(rb"(?:\\\\)++|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u([dD][89a-fA-F]..)")


def has_half(text: str) -> bool:
    """Returns whether this text contains a surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def is_first_half(character: str) -> bool:
    """Returns whether it may become a character with the one that follows it."""
    return "\ud800" <= character <= "\udbff"


def write_out_halves(value: bytes) -> bytes:
    """Returns the same JSON with each lone half replaced by the six characters of its escape, in lower case. Expects
    valid JSON. Two adjacent halves in one string are a character and stay.
    """
    # The search tries each byte; few values have an escape at all.
    return _ESCAPE.sub(_escaped, value) if b"\\u" in value else value


def _escaped(match: re.Match[bytes]) -> bytes:
    half: bytes | None = match[1]
    return match[0] if half is None else rb"\\u" + half.lower()

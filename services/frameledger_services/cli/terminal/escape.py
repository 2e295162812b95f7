"""Untrusted text made safe for a terminal: control characters are replaced."""

LONGEST = 200
"""Maximum characters of `one_line`."""


def printable(text: str) -> str:
    """Returns the text with control characters replaced, at full length."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str) -> str:
    """Returns the beginning of the text on one line, with control characters replaced."""
    joined = " ".join(text[: 4 * LONGEST].split())
    safe = printable(joined)
    return safe if len(safe) <= LONGEST else safe[: LONGEST - 1] + "…"


def lines(text: str) -> str:
    """Returns the text with its line breaks and tabs, and all other control characters replaced."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)

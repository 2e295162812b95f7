"""Text that is safe on a terminal, whatever it came from."""

LONGEST = 200
"""Characters of one line."""


def printable(text: str) -> str:
    """Text without anything that a terminal would obey, as long as it is."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str) -> str:
    """Text as the beginning of one line, without anything that a terminal would obey."""
    one = " ".join(text[: 4 * LONGEST].split())
    safe = printable(one)
    return safe if len(safe) <= LONGEST else safe[: LONGEST - 1] + "…"


def lines(text: str) -> str:
    """Text of several lines without anything else that a terminal would obey."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)

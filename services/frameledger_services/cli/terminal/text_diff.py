"""Word-level differences of two texts, and wrapping of styled text into lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

from rich.cells import cell_len

from frameledger_services.cli.terminal.pager import Piece

MAX_WORDS = 1_000
"""Maximum words and spaces, from the first to the last difference, that are compared. Comparing takes quadratic time.
"""

KEPT = 8
"""Unchanged words that are shown before and after a change."""

_WORD = re.compile(r"\s+|\w+|[^\w\s]")


def changed(before: str, after: str) -> list[tuple[str, str]]:
    """Returns the difference as pieces with the style `""` (unchanged), `removed` or `added`.

    Unchanged and added pieces together are the new text, except that long unchanged pieces are shortened.
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    begin = _alike(old, new)
    end = _alike(old[begin:][::-1], new[begin:][::-1])
    first, last = old[:begin], old[len(old) - end :]
    old, new = old[begin : len(old) - end], new[begin : len(new) - end]
    if max(len(old), len(new)) > MAX_WORDS:
        middle = [("".join(old), "removed"), ("".join(new), "added")]
    else:
        middle = list(_compared(old, new))
    pieces = [
        (_shortened(first, 0, 2 * KEPT if middle else 0), ""),
        *middle,
        (_shortened(last, 2 * KEPT if middle else 0, 0), ""),
    ]
    return [piece for piece in pieces if piece[0]]


def _compared(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield _shortened(old[i1:i2], 2 * KEPT, 2 * KEPT), ""
            continue
        if i1 < i2:
            yield "".join(old[i1:i2]), "removed"
        if j1 < j2:
            yield "".join(new[j1:j2]), "added"


def marked(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Marks the pieces for output without color, like `git diff --word-diff`: [-removed-] and {+added+}."""
    for text, style in pieces:
        match style:
            case "removed":
                yield f"[-{text}-]", style
            case "added":
                yield f"{{+{text}+}}", style
            case _:
                yield text, style


def lines(pieces: Iterable[Piece], width: int) -> Iterator[list[Piece]]:
    """Wraps the pieces into lines of at most `width` columns, between words if possible. Yields at least one line."""
    line: list[Piece] = []
    left = width
    for text, style in pieces:
        for word in re.findall(r"\n|[^\S\n]+|\S+", text):
            if word == "\n" or (cell_len(word) > left and line and not word.isspace()):
                yield line
                line, left = [], width
                if word == "\n":
                    continue
            rest = word
            while cell_len(rest) > width and not rest.isspace():
                # Longer than a line: a URL, or JSON.
                yield [(rest[: width // 2], style)]
                rest = rest[width // 2 :]
            line.append((rest, style))
            left -= cell_len(rest)
    yield line


def _alike(old: list[str], new: list[str]) -> int:
    """Returns the length of the common prefix in words."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(old), len(new)))


def _shortened(words: list[str], before: int, after: int) -> str:
    """Returns unchanged words as text: the first `before` and the last `after`, or all if there are few."""
    if len(words) <= before + after + 2 * KEPT:
        return "".join(words)
    return "".join(words[:before]) + " … " + "".join(words[len(words) - after :])

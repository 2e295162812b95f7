"""Splits a line of the settings file into words, quotes and comments as in a shell.

Nothing is expanded, and only blanks end a word, so an unquoted address may contain `$`, `&` and `;`. `shlex` is not
suitable: it takes every `#` outside quotes for a comment, which a shell does only at the start of a word, and it keeps
the backslash of `"\\$"`.
"""

import re

_PIECE = r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^ \t'"\\]"""
_PIECES = re.compile(_PIECE)
_WORD = re.compile(rf"(?!#)(?:{_PIECE})+")
_BETWEEN = re.compile(r"[ \t]*(?:#.*)?")
_ESCAPED_IN_QUOTES = re.compile(r"""\\([$`"\\])""")


def split(line: str) -> list[str] | None:
    """Returns the words of a line without its comment; None if a quote is not closed, or a backslash ends the line."""
    words = []
    position = _end(_BETWEEN, line, 0)
    while word := _WORD.match(line, position):
        words.append("".join(_unquoted(piece) for piece in _PIECES.findall(word[0])))
        position = _end(_BETWEEN, line, word.end())
    return words if position == len(line) else None


def _end(pattern: re.Pattern[str], line: str, position: int) -> int:
    return match.end() if (match := pattern.match(line, position)) else position


def _unquoted(piece: str) -> str:
    match piece[0]:
        case "'":
            return piece[1:-1]
        case '"':
            return _ESCAPED_IN_QUOTES.sub(r"\1", piece[1:-1])
        case "\\":
            return piece[1]
        case _:
            return piece

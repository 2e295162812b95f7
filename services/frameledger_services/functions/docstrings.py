"""The docstring of a function: its description of the function and of the parameters, for the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import docstring_parser
from docstring_parser import common, google, numpydoc
from docstring_parser.common import Docstring, DocstringStyle

_GOOGLE_TITLE = re.compile(
    "(" + "|".join(re.escape(section.title) for section in google.DEFAULT_SECTIONS) + r"):\s*"
)

_UNDERLINE = re.compile(r"-{3,}\s*")
_NUMPY_TITLES = frozenset(section.title for section in numpydoc.DEFAULT_SECTIONS)

_FIELDS = (
    common.PARAM_KEYWORDS
    | common.RAISES_KEYWORDS
    | common.RETURNS_KEYWORDS
    | common.YIELDS_KEYWORDS
    | common.DEPRECATION_KEYWORDS
    | {"type", "rtype"}
)
_NO_FIELD = re.compile(rf"^([ \t]*)(?=:)(?!:(?:{'|'.join(sorted(_FIELDS))})\b[^:\n]*:)", re.MULTILINE)
_SHIELD = "\N{WORD JOINER}"
"""Inserted before a line that begins with a colon and is not a field of reST: the parser would take it for one and drop
it, and in other styles also everything after it."""

_USAGE_SECTIONS = frozenset({"notes", "warnings"})
"""The sections of a NumPy docstring that describe how to use the function."""


@dataclass(frozen=True, slots=True)
class Documented:
    """The content of a docstring."""

    description: str
    """Its text without the sections about parameters, results, errors and examples."""

    parameters: Mapping[str, str]
    """The descriptions of the parameters, by name."""


def read(docstring: str) -> Documented:
    """Returns the content of a docstring in Google, NumPy or reST style; for other styles all text is the description.

    Text after the parameters, and a section with a name of its own, such as `Note:`, belong to the description.
    """
    docstring = _NO_FIELD.sub(rf"\1{_SHIELD}", docstring)
    # With a first line of its own, because the parser removes the indentation of all other lines.
    text = "\n" + docstring
    parsed = docstring_parser.parse(text)
    # The parsers drop text after their sections that belongs to none of them.
    if parsed.style is DocstringStyle.GOOGLE:
        text = _sections_last(docstring.split("\n"), _begins_google)
        parsed = google.parse(text)
    elif parsed.style is DocstringStyle.NUMPYDOC:
        text = _sections_last(docstring.split("\n"), _begins_numpy)
        parsed = numpydoc.parse(text)
    return Documented(
        "\n\n".join(_paragraphs(parsed, text)).replace(_SHIELD, ""),
        {
            name.strip(): (parameter.description or "").replace(_SHIELD, "")
            for parameter in parsed.params
            for name in parameter.arg_name.split(",")
        },
    )


def _paragraphs(parsed: Docstring, docstring: str) -> Iterable[str]:
    between = "\n\n" if parsed.blank_after_short_description else "\n"
    long_description = _indented(parsed.long_description or "", docstring)
    summary = between.join(text for text in (parsed.short_description, long_description) if text)
    usage = [meta.description for meta in parsed.meta if not _USAGE_SECTIONS.isdisjoint(meta.args)]
    return (text for text in (summary, *usage) if text)


def _indented(text: str, docstring: str) -> str:
    """Returns a text of the docstring with the indentation of its first line, which the parser removed."""
    before = docstring[: max(docstring.find(text), 0)].rpartition("\n")[2]
    return before + text if before.isspace() else text


def _sections_last(lines: Sequence[str], begins: Callable[[str, str], bool | None]) -> str:
    """Returns a docstring with its sections after all other text. `begins` receives a line and the next one, and
    returns whether a section begins there; None if neither that nor other text does."""
    text: list[str] = []
    sections: list[str] = []
    current = text
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        begun = begins(line, following)
        if begun is not None:
            before, current = current, sections if begun else text
            if current is text and before is sections and text and text[-1]:
                text.append("")
        current.append(line)
    return "\n".join(["", *text, "", *sections])


def _begins_google(line: str, _: str) -> bool | None:
    if not line or line[0].isspace():
        return None
    return _GOOGLE_TITLE.fullmatch(line) is not None


def _begins_numpy(line: str, following: str) -> bool | None:
    if not line.strip() or line[0].isspace() or not _UNDERLINE.fullmatch(following):
        return None
    return line.rstrip() in _NUMPY_TITLES and len(following.rstrip()) == len(line.rstrip())

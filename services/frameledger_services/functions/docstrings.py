"""The docstring of a function: what it tells the model about the function and about its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import docstring_parser
from docstring_parser import common, google
from docstring_parser.common import Docstring, DocstringStyle

_GOOGLE_TITLE = re.compile(
    "(" + "|".join(re.escape(section.title) for section in google.DEFAULT_SECTIONS) + r"):\s*"
)

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
"""Put before a line that begins with a colon and is no field of reST: the parser would take it for one, drop it, and of
other styles all that follows."""

_TOLD = frozenset({"notes", "warnings"})
"""The sections of a NumPy docstring that say how the function is to be used."""


@dataclass(frozen=True, slots=True)
class Documented:
    """What a docstring says."""

    description: str
    """Its text without the sections about parameters, results, errors and examples."""

    parameters: Mapping[str, str]
    """The descriptions of the parameters, by name."""


def read(docstring: str) -> Documented:
    """Returns what a docstring in Google, NumPy or reST style says; of any other, all its text is the description.

    Text behind the parameters, and a section with a name of its own, such as `Note:`, belong to the description.
    """
    docstring = _NO_FIELD.sub(rf"\1{_SHIELD}", docstring)
    # With a first line of its own: the parser takes the indent of all lines but the first away.
    parsed = docstring_parser.parse("\n" + docstring)
    if parsed.style is DocstringStyle.GOOGLE:
        # The parser drops what follows its sections without an indent.
        parsed = google.parse(_sections_last(docstring.split("\n")))
    return Documented(
        "\n\n".join(_paragraphs(parsed)).replace(_SHIELD, ""),
        {
            name.strip(): (parameter.description or "").replace(_SHIELD, "")
            for parameter in parsed.params
            for name in parameter.arg_name.split(",")
        },
    )


def _paragraphs(parsed: Docstring) -> Iterable[str]:
    between = "\n\n" if parsed.blank_after_short_description else "\n"
    summary = between.join(text for text in (parsed.short_description, parsed.long_description) if text)
    told = [meta.description for meta in parsed.meta if not _TOLD.isdisjoint(meta.args)]
    return (text for text in (summary, *told) if text)


def _sections_last(lines: Iterable[str]) -> str:
    """Returns a Google docstring with its sections behind all other text."""
    text: list[str] = []
    sections: list[str] = []
    current = text
    for line in lines:
        if line and not line[0].isspace():
            before, current = current, sections if _GOOGLE_TITLE.fullmatch(line) else text
            if current is text and before is sections and text and text[-1]:
                text.append("")
        current.append(line)
    return "\n".join(["", *text, "", *sections])

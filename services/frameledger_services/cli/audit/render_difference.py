"""A difference between the tables and what their frames say, as `verify` and `rebuild` print it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from frameledger_services.audit.differences import ROW, Difference, Differences
from frameledger_services.cli.terminal import escape, output

LENGTH = 40
"""Characters of a value that are shown."""

_VERSIONS = ("valid_from", "requested_version")
"""Columns of a key that say the version again."""


def in_words(one: Difference) -> str:
    """A line without the version, which stands in front of it, and without anything that a terminal would obey."""
    named = [pair for pair in one.key.items() if pair[0] not in _VERSIONS or pair[1] != one.version]
    key = ", ".join(f"{name} {_short(value)}" for name, value in named)
    where = f" of {key}" if key else ""
    if one.field == ROW:
        what = f"{one.table}: a row{where} is {'missing' if one.stored is None else 'one too many'}"
    else:
        what = f"{one.table}.{one.field}{where} is {_short(one.stored)}, should be {_short(one.expected)}"
    return escape.printable(what)


def as_objects(found: Differences) -> list[dict[str, Any]]:
    """Those that are kept, in order, each as an object of its fields, for `output.print_json_object`: of a row that is
    missing the field is "row" and `stored` is null, of one too many `expected` is."""
    return [asdict(one) for one in found.in_order()]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else output.json_text(value)
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 3]}..."

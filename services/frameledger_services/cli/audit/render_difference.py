"""Differences between the tables and the fold of their frames, as `verify` and `rebuild` print them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from frameledger_services.audit.differences import ROW, Difference, Differences
from frameledger_services.cli.terminal import escape, output

LENGTH = 40
"""Maximum characters of a value that are shown."""

_VERSIONS = ("valid_from", "requested_version")
"""Key columns that repeat the version."""


def in_words(difference: Difference) -> str:
    """Returns the difference on one line with control characters escaped. The caller prints the version in front."""
    named = [
        pair for pair in difference.key.items() if pair[0] not in _VERSIONS or pair[1] != difference.version
    ]
    key = ", ".join(f"{name} {_short(value)}" for name, value in named)
    where = f" of {key}" if key else ""
    if difference.field == ROW:
        what = (
            f"{difference.table}: a row{where} is {'missing' if difference.stored is None else 'unexpected'}"
        )
    else:
        values = f"is {_short(difference.stored)}, should be {_short(difference.expected)}"
        what = f"{difference.table}.{difference.field}{where} {values}"
    return escape.printable(what)


def as_objects(differences: Differences) -> list[dict[str, Any]]:
    """Returns the kept differences in order, as objects for `output.print_json_object`. For a missing row the field is
    "row" and `stored` is null; for an unexpected row `expected` is null."""
    return [asdict(one) for one in differences.in_order()]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else output.json_text(value)
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 3]}..."

"""How `verify` treats columns that older releases did not write."""

import re

from tests.support.pages import ROOT

from frameledger_services.audit.column_comparison import NULL_BEFORE

ALTERED = re.compile(r"ALTER TABLE (messages|runs|tool_calls)\s(.*?);", re.S)
ADDED = re.compile(r"ADD COLUMN (\w+)\s+([^,;]+)")
FIRST = "0005"
"""Columns of earlier revisions are listed, or no frame of that time has a value for them."""


def null_in_older_rows() -> set[str]:
    return {
        name
        for path in (ROOT / "migrations" / "sql").glob("*/*.sql")
        if path.parent.name >= FIRST
        for _, changes in ALTERED.findall(path.read_text(encoding="utf-8"))
        for name, kind in ADDED.findall(changes)
        if "NOT NULL" not in kind
    }


def test_a_column_that_was_added_later_is_not_reported_as_changed_in_older_rows():
    added = null_in_older_rows()
    assert {"said_at", "is_copy"} <= added
    assert added - NULL_BEFORE == set(), "add it to NULL_BEFORE, or here if its migration fills it in"

"""Every finding of `tests/findings.md` has a test that names it or a reason why not, and no test names another."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(
    r"^\| ((?:bridge|fault|repair|seed|trial|journey|call|worker|fold|gateway) [\w -]+) \| (.+?) \| (.*?) ?\|$",
    re.MULTILINE,
)


def test_findings_are_listed_once_each():
    names = [name for name, _, _ in rows()]
    assert names, "no row of tests/findings.md begins with a finding"
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_every_finding_has_a_test_that_names_it_or_a_reason():
    shown = named()
    assert [name for name, _, reason in rows() if name not in shown and not reason] == []


def test_every_named_finding_is_listed():
    names = {name for name, _, _ in rows()}
    assert {name: places for name, places in named().items() if name not in names} == {}


@pytest.mark.parametrize(
    ("source", "findings"),
    [
        ("@pytest.mark.regression('fault 1')\ndef test_a(): ...", ["fault 1"]),
        ("@pytest.mark.regression('fault 1', 'trial C1')\nclass TestA: ...", ["fault 1", "trial C1"]),
        ("pytestmark = pytest.mark.regression('call a')", ["call a"]),
        ("@pytest.mark.rule('R1.2')\ndef test_a(): ...", []),
    ],
)
def test_marks_are_found(source, findings):
    assert [finding for finding, _ in marks(ast.parse(source))] == findings


def rows() -> list[tuple[str, str, str]]:
    """Each finding, what was found, and why it has no test; empty where it has one."""
    return ROW.findall((ROOT / "tests" / "findings.md").read_text(encoding="utf-8"))


@cache
def named() -> dict[str, list[str]]:
    """For every finding that a test names, where."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        # To parse them all takes two seconds.
        for finding, line in marks(ast.parse(text)) if "mark.regression" in text else ():
            places.setdefault(finding, []).append(f"{path.relative_to(ROOT)}:{line}")
    return places


def marks(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every finding that a mark names, with the mark's line."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="regression", value=ast.Attribute(attr="mark")), args=args):
                yield from ((ast.literal_eval(finding), node.lineno) for finding in args)

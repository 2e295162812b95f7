"""Every rule of events/rules.md has a test that names it, and no test names a rule that is not there.

A rule is an item of a list that begins with its number in bold. A test names the rules that it shows with
`@pytest.mark.rule("R1.2", ...)`. Both are read as text, so this holds whichever tests a run selects.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RULE = re.compile(r"^- \*\*(R[0-9A-Z]+(?:\.[0-9a-z]+)*)\*\*", re.MULTILINE)


def test_rules_are_numbered_once_each():
    numbers = written()
    assert numbers, "no item of events/rules.md begins with a rule's number in bold"
    assert sorted({number for number in numbers if numbers.count(number) > 1}) == []


def test_every_rule_has_a_test_that_names_it():
    shown = named()
    assert [number for number in written() if number not in shown] == []


def test_every_named_rule_exists():
    numbers = set(written())
    assert {number: places for number, places in named().items() if number not in numbers} == {}


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("@pytest.mark.rule('R1.2')\ndef test_a(): ...", ["R1.2"]),
        ("@pytest.mark.rule('R1.2', 'RA5.commit')\nclass TestA: ...", ["R1.2", "RA5.commit"]),
        ("pytestmark = pytest.mark.rule('R3')", ["R3"]),
        ("case = pytest.param(1, marks=pytest.mark.rule('R4'))", ["R4"]),
        ("@pytest.mark.rule('R5')\ndef a_helper_that_nobody_runs(): ...", []),
        ("@pytest.mark.skip('R6')\ndef test_a(): ...", []),
    ],
)
def test_marks_are_found_on_tests_only(source, numbers):
    assert [number for number, _ in marks(ast.parse(source))] == numbers


def written() -> list[str]:
    """The number of every rule, in the order of the page."""
    return RULE.findall((ROOT / "events" / "rules.md").read_text(encoding="utf-8"))


@cache
def named() -> dict[str, list[str]]:
    """For every number that a test names, where."""
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        # To parse them all takes two seconds.
        for number, line in marks(ast.parse(text)) if "mark.rule" in text else ():
            places.setdefault(number, []).append(f"{path.relative_to(ROOT)}:{line}")
    return places


def marks(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every number that a mark names, with the mark's line; a mark on what is no test counts for nothing."""
    idle = {
        decorator
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if not node.name.lower().startswith("test")
        for decorator in node.decorator_list
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="rule", value=ast.Attribute(attr="mark")), args=args):
                if node not in idle:
                    yield from ((ast.literal_eval(number), node.lineno) for number in args)

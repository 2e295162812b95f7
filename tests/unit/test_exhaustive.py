"""Forgetting a frame in `evolve` is a type error."""

import ast
from pathlib import Path

from tests.unit.type_checking import ROOT, errors_in

EVOLVE = ROOT / "events" / "frameledger" / "evolve" / "__init__.py"


def test_a_frame_that_no_case_of_evolve_names_fails_the_type_check(tmp_path: Path) -> None:
    source = EVOLVE.read_text(encoding="utf-8")
    (tmp_path / "whole.py").write_text(source, encoding="utf-8")
    (tmp_path / "without_one.py").write_text(without("'LLMThoughtTextFrame'", source), encoding="utf-8")
    errors = errors_in(tmp_path)

    assert errors["whole.py"] == []
    [error] = errors["without_one.py"]
    assert """"assert_never" has incompatible type "Literal['LLMThoughtTextFrame']";""" in error


def without(pattern: str, source: str) -> str:
    """The source without the one case of this pattern."""
    tree = ast.parse(source)
    [(match, case)] = [
        (match, case)
        for match in ast.walk(tree)
        if isinstance(match, ast.Match)
        for case in match.cases
        if ast.unparse(case.pattern) == pattern
    ]
    match.cases.remove(case)
    return ast.unparse(tree)

"""Tests wait for progress, and every limit of a wait is in `tests/bounds.py`: no test contains a number of seconds."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import bounds

ROOT = Path(__file__).resolve().parents[2]
SHORT = 1.0
"""Seconds below which a time-out is what a test is about, or the pause between two looks."""


def test_no_test_names_a_number_of_seconds_to_wait():
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line in waits(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(), "take a bound from tests/bounds.py, which is scaled to the machine"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("async with asyncio.timeout(20): ...", [1]),
        ("async with asyncio.timeout(delay=20.0): ...", [1]),
        ("wait_for(a, 5)", [1]),
        ("process.wait(30)", [1]),
        ("process.communicate(timeout=60)", [1]),
        ("client.publish(frame, within=30)", [1]),
        ("asyncio.timeout(0)", []),
        ("connection.notifies(timeout=0.05)", []),
        ("asyncio.timeout(ON_SERVERS)", []),
        ("queue.join('a')", []),
    ],
)
def test_waits_are_found(source, lines):
    assert list(waits(ast.parse(source))) == lines


def test_the_factor_is_measured_once_and_inherited_by_processes():
    environment = {**os.environ, bounds.VARIABLE: "3.5"}
    command = [sys.executable, "-c", "from tests import bounds; print(bounds.scaled(2.0))"]
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert float(told.stdout) == 7.0
    assert float(os.environ[bounds.VARIABLE]) == bounds.slowness() >= bounds.FASTEST


def waits(tree: ast.Module) -> Iterator[int]:
    """The line of every call that ends a wait after a number of seconds."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [word.value for word in node.keywords if word.arg in {"timeout", "within"}]
        if name in {"timeout", "wait", "join", "result", "poll"}:
            given += [word.value for word in node.keywords if word.arg == "delay"]
            given += node.args[:1]
        if name == "ProduceRequest":
            continue  # the broker's own limit, in milliseconds
        if name == "wait_for":
            given += node.args[1:2]
        if any(isinstance(one, ast.Constant) and _is_long(one.value) for one in given):
            yield node.lineno


def _is_long(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > SHORT

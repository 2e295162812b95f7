"""What `make test` runs beside the tests, and what becomes of it."""

import sys
from pathlib import Path

import psutil
import pytest
from tests import whole

WELL, ILL = (
    (sys.executable, "-c", ""),
    (sys.executable, "-c", "print('types are wrong'); raise SystemExit(3)"),
)


def notes(file: Path, code: int = 0):
    """A program that leaves a note that it ran."""
    return sys.executable, "-c", f"open({str(file)!r}, 'w').close(); raise SystemExit({code})"


def test_all_is_tried_and_what_fails_last_is_told(tmp_path):
    tests, bridges = tmp_path / "tests", tmp_path / "bridges"
    assert whole.tried(WELL, WELL, notes(tests), notes(bridges, 5)) == 5
    assert tests.exists()
    assert bridges.exists()


@pytest.mark.parametrize("failing", ["types", "tests"])
def test_what_fails_before_the_bridges_is_told_and_they_are_not_tried(tmp_path, capsys, failing):
    tests, bridges = tmp_path / "tests", tmp_path / "bridges"
    types, code = (ILL, 0) if failing == "types" else (WELL, 4)
    assert whole.tried(types, WELL, notes(tests, code), notes(bridges)) == (code or 3)
    assert ("types are wrong" in capsys.readouterr().out) is (failing == "types")
    assert tests.exists()
    assert not bridges.exists()


def test_packages_that_cannot_be_fetched_are_left_to_the_bridges(tmp_path):
    assert whole.tried(WELL, ILL, WELL, notes(tmp_path / "bridges")) == 0
    assert (tmp_path / "bridges").exists()


@pytest.mark.parametrize("code", [1, 2, 130])
def test_nothing_that_ran_beside_is_left(tmp_path, code):
    forever = (sys.executable, "-c", "import signal; signal.pause()")
    before = {child.pid for child in psutil.Process().children()}
    # Whoever interrupts the tests waits for nothing else.
    types = forever if code in whole.INTERRUPTED else WELL
    assert whole.tried(types, forever, notes(tmp_path / "tests", code), WELL) == code
    assert {child.pid for child in psutil.Process().children()} <= before

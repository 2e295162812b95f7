"""The programs that `make test` runs concurrently with the tests, and their results."""

import sys
from pathlib import Path

import psutil
import pytest
from tests import whole


def notes(file: Path, code: int = 0):
    """A program that leaves a note that it ran."""
    return sys.executable, "-c", f"open({str(file)!r}, 'w').close(); raise SystemExit({code})"


@pytest.mark.parametrize(
    ("codes", "told"),
    [((0, 0, 0), 0), ((0, 0, 5), 5), ((0, 3, 5), 3), ((4, 3, 5), 4)],
    ids=["none", "the bridges", "types and bridges", "all"],
)
def test_all_is_run_and_the_first_failure_is_the_exit_code(tmp_path, codes, told):
    tests, types, bridges = (
        notes(tmp_path / name, code) for name, code in zip(("tests", "types", "bridges"), codes, strict=True)
    )
    assert whole.run_all(types, tests, bridges) == told
    assert sorted(one.name for one in tmp_path.iterdir()) == ["bridges", "tests", "types"]


def test_what_ran_beside_the_tests_is_printed_after_them(capfd):
    tests, types, bridges = (
        (sys.executable, "-c", f"print({word!r})") for word in ("tested", "typed", "bridged")
    )
    assert whole.run_all(types, tests, bridges) == 0
    assert capfd.readouterr().out.split() == ["tested", "typed", "bridged"]


@pytest.mark.parametrize("code", [2, 130])
def test_nothing_is_left_of_what_ran_beside_tests_that_were_interrupted(tmp_path, code):
    forever = (sys.executable, "-c", "import signal; signal.pause()")
    before = {child.pid for child in psutil.Process().children()}
    assert whole.run_all(forever, notes(tmp_path / "tests", code), forever) == code
    assert {child.pid for child in psutil.Process().children()} <= before

"""How the suite finds SQL statements that no test executes."""

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.statements import (
    Executed,
    _executed,
    _written,
    parts_of,
    pytest_sessionfinish,
    pytest_testnodedown,
    statements,
)
from tests.whole import QUICK


def wanted(source):
    return {f"here:{line}": parts_of(text) for line, text in _written(ast.parse(source))}


def test_statements_are_found_wherever_they_are_written():
    source = '''
A = "SELECT 1"
B = f"UPDATE {table} SET a = 1"
C = ("INSERT INTO a "
     "VALUES (%s)")
D = sql.SQL("COPY {} FROM STDIN")
E = "Selected is nothing"
F = """
    WITH a AS (SELECT) SELECT
"""
def f():
    """SELECT is what this is about."""
'''
    assert sorted(wanted(source)) == ["here:2", "here:3", "here:4", "here:6", "here:8"]


def test_a_statement_is_executed_when_all_its_written_parts_are():
    executed = Executed(wanted('A = f"UPDATE {table} SET a = 1 WHERE {key} = %s"'))
    executed.record("UPDATE b SET a = 2 WHERE c = %s")
    assert executed.missing
    executed.record('UPDATE\n  "b" SET a = 1\n  WHERE c = %s')
    assert not executed.missing


def test_what_another_process_executed_is_executed():
    executed = Executed({"a:1": ("a",), "b:1": ("b",), "c:1": ("c",)})
    executed.record("a")
    executed.record_others(["a:1", "c:1"])
    assert list(executed.missing) == ["c:1"]


def test_the_services_have_statements_to_look_for():
    found = statements()
    assert len(found) > 100
    assert {place.partition("/")[0] for place in found} >= {"claims", "projector", "store"}


def run_of(paths, missing, status=pytest.ExitCode.OK, markexpr="", **others):
    """A session of pytest at its end, which was asked for these paths and did not execute these statements."""
    option = dict.fromkeys(["keyword", "collectonly"]) | {"markexpr": markexpr}
    config = SimpleNamespace(
        rootpath=Path("/here"),
        args=paths,
        option=SimpleNamespace(**option),
        stash={_executed: Executed({place: (place,) for place in missing})},
        **others,
    )
    return SimpleNamespace(config=config, exitstatus=status, shouldstop=False, shouldfail=False)


@pytest.mark.parametrize(
    ("paths", "missing", "before", "after"),
    [
        (["/here/tests"], ["a:1"], pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        (["/here/tests"], [], pytest.ExitCode.OK, pytest.ExitCode.OK),
        (["/here/tests/unit"], ["a:1"], pytest.ExitCode.OK, pytest.ExitCode.OK),
        (["/here/tests"], ["a:1"], pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERRUPTED),
    ],
    ids=["whole", "nothing missing", "a part", "interrupted"],
)
def test_a_green_run_of_the_whole_suite_fails_for_a_statement_that_it_did_not_execute(
    paths, missing, before, after
):
    session = run_of(paths, missing, before)
    pytest_sessionfinish(session)
    assert session.exitstatus == after


@pytest.mark.parametrize(("markexpr", "fails"), [(QUICK, True), ("long", False), ("not servers", False)])
def test_the_whole_suite_is_whole_without_its_long_tests(markexpr, fails):
    session = run_of(["/here/tests"], ["a:1"], markexpr=markexpr)
    pytest_sessionfinish(session)
    assert session.exitstatus == (pytest.ExitCode.TESTS_FAILED if fails else pytest.ExitCode.OK)


def test_with_workers_only_what_none_of_them_executed_fails_the_run():
    controller = run_of(["/here/tests"], ["a:1", "b:1"])
    for left in (["a:1"], ["b:1"]):
        worker = run_of(["/here/tests"], left, workeroutput={})
        pytest_sessionfinish(worker)
        assert worker.exitstatus == pytest.ExitCode.OK
        pytest_testnodedown(
            SimpleNamespace(config=controller.config, workeroutput=worker.config.workeroutput)
        )
    pytest_sessionfinish(controller)
    assert controller.exitstatus == pytest.ExitCode.OK

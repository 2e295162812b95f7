"""How the suite finds out which SQL statements no test executed."""

import ast
import re

from tests.statements import Executed, _pattern, _written, statements


def wanted(source):
    return {f"here:{line}": _pattern(text) for line, text in _written(ast.parse(source))}


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
'''
    assert sorted(wanted(source)) == ["here:2", "here:3", "here:4", "here:6", "here:8"]


def test_a_statement_is_executed_when_all_its_written_parts_are():
    executed = Executed(wanted('A = f"UPDATE {table} SET a = 1 WHERE {key} = %s"'))
    executed.saw("UPDATE b SET a = 2 WHERE c = %s")
    assert executed.missing
    executed.saw('UPDATE\n  "b" SET a = 1\n  WHERE c = %s')
    assert not executed.missing


def test_what_another_process_executed_is_executed():
    executed = Executed({"a:1": re.compile("a"), "b:1": re.compile("b"), "c:1": re.compile("c")})
    executed.saw("a")
    executed.seen_by_others(["a:1", "c:1"])
    assert list(executed.missing) == ["c:1"]


def test_the_services_have_statements_to_look_for():
    found = statements()
    assert len(found) > 100
    assert {place.partition("/")[0] for place in found} >= {"claims", "projector", "store", "timekeeper"}

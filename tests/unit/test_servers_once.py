"""A process of the suite has one of each server and one template database, for tests of any folder."""

import ast
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ONCE = {"kafka", "postgres", "database_server", "migrated_template", "shared_database"}
FROM = ("tests.support.servers", "tests.support.databases")


def imported(path: Path) -> set[str]:
    """The names that a file imports from where those fixtures are."""
    text = path.read_text(encoding="utf-8")
    if not any(module in text for module in FROM):
        return set()
    return {
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module in FROM
        for alias in node.names
    }


def test_what_there_is_one_of_is_a_fixture_of_the_outermost_folder_alone():
    """Each folder, or file, that imports a fixture has one of its own, and so another server."""
    assert imported(TESTS / "conftest.py") >= ONCE
    others = {
        str(path.relative_to(TESTS)): again
        for path in TESTS.rglob("*.py")
        if "bridges" not in path.parts
        and path.parent != TESTS
        and (path.name == "conftest.py" or path.name.startswith("test_"))
        and (again := imported(path) & ONCE)
    }
    assert others == {}

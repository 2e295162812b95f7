"""Finds SQL statements of the services that no test executes. A run of the whole suite, with or without its long tests,
lists them and fails.

A statement counts as executed if this process, or one of xdist's, passed it to psycopg, but not if only a program that
a test started did. With `--statements` a run of a part of the suite lists its missing statements without failing.
`conftest.py` imports the hooks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.whole import QUICK

SERVICES = Path(__file__).resolve().parents[1] / "services" / "frameledger_services"
ROOMS = (
    *("claims", "cli", "client", "functions", "inference", "projector", "store", "timekeeper", "work"),
    "database.py",
)
NOT_EXECUTED = {"cli/demo/closing.py": "shown to the user, and executed by psql"}

_WORDS = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WITH|LISTEN|NOTIFY|LOCK|SHOW|SET|COPY|ALTER)\b")
_HOLE = "\0"


Parts = tuple[str, ...]
"""Texts that an executed statement has to contain in this order, with any text between them."""


def statements() -> dict[str, Parts]:
    """Returns the texts in the services that begin like a statement, by file and line."""
    files = [path for room in ROOMS for path in _files(SERVICES / room)]
    sources = {path.relative_to(SERVICES).as_posix(): path.read_text(encoding="utf-8") for path in files}
    return {
        f"{name}:{line}": parts_of(text)
        for name, source in sources.items()
        if name not in NOT_EXECUTED and _WORDS.search(source)
        for line, text in _written(ast.parse(source))
    }


class Executed:
    """Removes executed statements from those that are `missing`."""

    def __init__(self, wanted: dict[str, Parts]) -> None:
        self.missing = dict(wanted)
        self._texts: set[str] = set()

    def record(self, query: Any) -> None:
        text = query.as_string(None) if isinstance(query, sql.Composable) else query
        text = text.decode() if isinstance(text, bytes) else str(text)
        if text not in self._texts:
            self._texts.add(text)
            plain = _plain(text)
            for place in [place for place, parts in list(self.missing.items()) if is_in(plain, parts)]:
                self.missing.pop(place, None)

    def record_others(self, missing: Iterable[str]) -> None:
        """Record that another process executed all statements except these."""
        left = set(missing)
        self.missing = {place: one for place, one in self.missing.items() if place in left}

    def watch(self) -> None:
        """Record everything that psycopg executes in this process from now on."""
        for kind in (psycopg.Cursor, psycopg.AsyncCursor, psycopg.ServerCursor, psycopg.AsyncServerCursor):
            for name in ("execute", "executemany", "stream", "copy"):
                if name in vars(kind):
                    setattr(kind, name, self._recorded(getattr(kind, name)))

    def _recorded(self, method: Any) -> Any:
        @wraps(method)
        def recorded(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            self.record(query)
            return method(cursor, query, *arguments, **options)

        return recorded


_executed = pytest.StashKey[Executed]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--statements", action="store_true", help="List the SQL statements that this run did not execute."
    )


def pytest_configure(config: pytest.Config) -> None:
    executed = config.stash[_executed] = Executed(statements())
    executed.watch()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Called when a process of xdist has ended."""
    if "statements" in getattr(node, "workeroutput", {}):
        node.config.stash[_executed].record_others(node.workeroutput["statements"])


def pytest_sessionfinish(session: pytest.Session) -> None:
    missing = session.config.stash[_executed].missing
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["statements"] = list(missing)
    elif missing and session.exitstatus == pytest.ExitCode.OK and is_whole(session):
        # All processes of xdist have ended, so `missing` has what none of them executed.
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    missing = config.stash[_executed].missing
    if missing and (config.option.statements or is_whole(terminalreporter._session)):
        terminalreporter.section("SQL statements that no test executed")
        for place in missing:
            terminalreporter.line(place)


def is_whole(session: pytest.Session) -> bool:
    """Whether the whole suite was selected and ran to its end."""
    config, option = session.config, session.config.option
    chosen = (
        option.keyword,
        option.markexpr not in ("", QUICK),
        getattr(option, "deselect", None),
        getattr(option, "ignore", None),
    )
    everything = [Path(one).resolve() for one in config.args] == [config.rootpath / "tests"]
    is_cut_short = (
        session.shouldstop or session.shouldfail or option.collectonly or getattr(option, "lf", False)
    )
    return everything and not any(chosen) and not is_cut_short


def _files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def _written(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields texts that begin like a statement, each with its line, except docstrings. Placeholders become holes."""
    nodes = list(ast.walk(tree))
    docstrings = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        match node:
            case ast.JoinedStr(values=values):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else _HOLE for part in values
                )
            case ast.Constant(value=str(value)) if id(node) not in parts | docstrings:
                text = re.sub(r"\{\w*\}", _HOLE, value)
            case _:
                continue
        if _WORDS.match(text.lstrip()):
            yield node.lineno, text


def parts_of(text: str) -> Parts:
    """Returns the parts of a statement between its holes."""
    return tuple(_plain(part) for part in text.split(_HOLE))


def is_in(plain: str, parts: Parts) -> bool:
    """Whether a text has all parts in this order. In one pass, because a regular expression with many gaps would
    backtrack."""
    at = 0
    for part in parts:
        at = plain.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def _plain(text: str) -> str:
    """Returns a statement with its white space folded."""
    return " ".join(text.split())

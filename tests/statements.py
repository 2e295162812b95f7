"""Which SQL statements of the services no test executed: a run of the whole suite, with or without its long tests,
lists them, and fails for them.

If a statement that no test runs is broken, the first user finds out. A statement counts as executed if this process, or
one of xdist's, passed it to psycopg, but not if only a program that a test started did. A run of a part of the suite
lists what it did not execute with `--statements`, and does not fail. The hooks are imported by `conftest.py`.
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
NOT_EXECUTED = {"cli/demo/closing.py": "shown to a person, and executed by psql"}

_WORDS = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|WITH|LISTEN|NOTIFY|LOCK|SHOW|SET|COPY|ALTER)\b")
_HOLE = "\0"


Parts = tuple[str, ...]
"""What an executed text has to contain, in this order, with anything between."""


def statements() -> dict[str, Parts]:
    """What begins like a statement in the services, by file and line."""
    files = [path for room in ROOMS for path in _files(SERVICES / room)]
    sources = {path.relative_to(SERVICES).as_posix(): path.read_text(encoding="utf-8") for path in files}
    return {
        f"{name}:{line}": parts_of(text)
        for name, source in sources.items()
        if name not in NOT_EXECUTED and _WORDS.search(source)
        for line, text in _written(ast.parse(source))
    }


class Executed:
    """Looks through what is executed for statements that were not seen yet."""

    def __init__(self, wanted: dict[str, Parts]) -> None:
        self.missing = dict(wanted)
        self._texts: set[str] = set()

    def saw(self, query: Any) -> None:
        text = query.as_string(None) if isinstance(query, sql.Composable) else query
        text = text.decode() if isinstance(text, bytes) else str(text)
        if text not in self._texts:
            self._texts.add(text)
            plain = _plain(text)
            for place in [place for place, parts in list(self.missing.items()) if is_in(plain, parts)]:
                self.missing.pop(place, None)

    def seen_by_others(self, missing: Iterable[str]) -> None:
        """Another process executed all but these."""
        left = set(missing)
        self.missing = {place: one for place, one in self.missing.items() if place in left}

    def listen(self) -> None:
        """From now on, to all that psycopg executes in this process."""
        for kind in (psycopg.Cursor, psycopg.AsyncCursor, psycopg.ServerCursor, psycopg.AsyncServerCursor):
            for name in ("execute", "executemany", "stream", "copy"):
                if name in vars(kind):
                    setattr(kind, name, self._heard(getattr(kind, name)))

    def _heard(self, method: Any) -> Any:
        @wraps(method)
        def heard(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            self.saw(query)
            return method(cursor, query, *arguments, **options)

        return heard


_executed = pytest.StashKey[Executed]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--statements", action="store_true", help="List the SQL statements that this run did not execute."
    )


def pytest_configure(config: pytest.Config) -> None:
    executed = config.stash[_executed] = Executed(statements())
    executed.listen()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of xdist is at its end."""
    if "statements" in getattr(node, "workeroutput", {}):
        node.config.stash[_executed].seen_by_others(node.workeroutput["statements"])


def pytest_sessionfinish(session: pytest.Session) -> None:
    missing = session.config.stash[_executed].missing
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["statements"] = list(missing)
    elif missing and session.exitstatus == pytest.ExitCode.OK and is_whole(session):
        # Here `missing` is what no worker of xdist executed: all have ended by now.
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    missing = config.stash[_executed].missing
    if missing and (config.option.statements or is_whole(terminalreporter._session)):
        terminalreporter.section("SQL statements that no test executed")
        for place in missing:
            terminalreporter.line(place)


def is_whole(session: pytest.Session) -> bool:
    """Whether everything was asked for, and run to its end."""
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
    """Texts that begin like a statement, each with its line; what is filled in is a hole. Docstrings are none."""
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
    """The written parts of a statement, between its holes."""
    return tuple(_plain(part) for part in text.split(_HOLE))


def is_in(plain: str, parts: Parts) -> bool:
    """Whether a text has all the parts, in this order. In one pass: a regular expression with as many gaps would try
    every way to place them."""
    at = 0
    for part in parts:
        at = plain.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def _plain(text: str) -> str:
    """Without what does not change a statement."""
    return " ".join(text.split())

"""All logged events are listed with their level, and all listed events are logged."""

import ast
from collections import defaultdict
from pathlib import Path

from frameledger_services.log_events import EVENTS

SERVICES = Path(__file__).resolve().parents[2] / "services" / "frameledger_services"
LEVELS = {"info": "info", "warning": "warning", "error": "error", "exception": "error", "debug": "debug"}
LOGGERS = {"log", "_log"}


def parsed(word):
    """Yields the parsed files of the services that contain this word. Parsing all files takes a second."""
    for path in SERVICES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if word in text:
            yield path, ast.parse(text)


def logged():
    """Yields each call of a logger: its file and line, its level and its event names."""
    for path, tree in parsed("log."):
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method), args=[event]) if (
                    name in LOGGERS and method in LEVELS
                ):
                    names = {part.value for part in ast.walk(event) if isinstance(part, ast.Constant)}
                    yield (
                        f"{path.name}:{node.lineno}",
                        LEVELS[method],
                        {one for one in names if "." in str(one)},
                    )
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if (
                    name in LOGGERS and method in LEVELS
                ):
                    yield f"{path.name}:{node.lineno}", LEVELS[method], set()
    for path, tree in parsed("FrequentEvent("):
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="FrequentEvent"), args=[_, ast.Constant(value=made)]):
                    yield f"{path.name}:{node.lineno}", "info", {made}


def test_every_event_is_a_constant_that_the_list_has_with_its_level():
    found = defaultdict(set)
    for where, level, names in logged():
        assert names, where
        for name in names:
            found[name].add(level)
    assert found == {name: {event.level} for name, event in EVENTS.items()}


def test_no_other_module_makes_loggers_of_its_own():
    makers = {
        path.name
        for path, tree in parsed("structlog")
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and "structlog" in ast.unparse(node)
    }
    assert makers == {"logs.py"}

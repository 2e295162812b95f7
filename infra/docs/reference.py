"""Reference lists that are generated from the code: settings, commands, log events, metrics, database objects, and the
Python API.

A line such as `<!-- settings -->` marks the place of a list in a page. The lists are not stored, so they cannot be
outdated; `frameledger config`, `--help` and psql's `\\d+` print the same.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from pydantic_core import PydanticUndefined
from sqlalchemy.dialects import postgresql

from frameledger_services.accepted_values import accepted_values
from frameledger_services.cli import GROUPS, application
from frameledger_services.log_events import EVENTS
from frameledger_services.settings import PREFIX, Settings
from frameledger_services.store.tables import metadata
from frameledger_services.telemetry.metric_types import Metric
from frameledger_services.telemetry.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
SQL = ROOT / "migrations" / "sql"
COMMENT = r"COMMENT ON (VIEW|COLUMN|FUNCTION|PROCEDURE) (.+?) IS\s+((?:'(?:[^']|'')*'\s*)+);"
CREATE = r"CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (\w+)\((.*?)\)\s"
STATEMENT = re.compile(rf"^(?:{COMMENT}|DROP VIEW (\w+);|{CREATE})", re.S | re.M)
PARAMETER = re.compile(r"^\s*(?!OUT )\"?(\w+)\"? (\w+)( DEFAULT)?")


def filled(markdown: str) -> str:
    """Returns a page with its markers replaced by lists."""
    return re.sub(
        r"^<!-- (settings|commands|log_events|metrics|tables|views|functions|python) -->$",
        _listed,
        markdown,
        flags=re.M,
    )


def _listed(found: re.Match[str]) -> str:
    return "\n".join(LISTS[found[1]]())


def settings() -> Iterator[str]:
    """Each setting as a row of a table."""
    yield "| variable | default | takes | meaning |"
    yield "| --- | --- | --- | --- |"
    for name, field in Settings.model_fields.items():
        default = "" if field.default in (None, PydanticUndefined, "") else f"`{field.default}`"
        takes = accepted_values(Settings, name)
        shown = "" if takes in ("text", "a path") else takes
        yield f"| `{PREFIX}{name.upper()}` | {default} | {shown} | {_cell(field.description)} |"


def commands() -> Iterator[str]:
    """Each command with its help, its arguments and its options."""
    top = typer.main.get_command(application())
    context = top.make_context("frameledger", [], resilient_parsing=True)
    for title, group in GROUPS.items():
        yield f"## {title}"
        yield ""
        for name in group:
            _, command, _ = top.resolve_command(context, [name])
            yield from _command(command, ["frameledger", name])


def _command(command, path) -> Iterator[str]:
    within = getattr(command, "commands", None)
    if within:
        for name, one in within.items():
            yield from _command(one, [*path, name])
        return
    yield f"### {' '.join(path[1:])}"
    yield ""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    shown = [one.metavar or one.name.upper() for one in arguments]
    yield f"`{' '.join([*path, *(['[OPTIONS]'] if options else []), *shown])}`"
    yield ""
    yield command.help or ""
    for one in [*arguments, *options]:
        yield ""
        names = (
            ", ".join([*one.opts, *one.secondary_opts]) if one in options else one.metavar or one.name.upper()
        )
        yield f"- `{names}`: {one.help or ''}"
    yield ""


def log_events() -> Iterator[str]:
    """Each event that the services log."""
    yield "| event | level | meaning | what to do |"
    yield "| --- | --- | --- | --- |"
    for name, event in EVENTS.items():
        yield f"| `{name}` | {event.level} | {_cell(event.meaning)} | {_cell(event.remedy)} |"


def metrics() -> Iterator[str]:
    """Each metric, grouped by service."""
    of: dict[str, list[Metric]] = {}
    for metric in METRICS.values():
        of.setdefault(metric.of, []).append(metric)
    for service, some in of.items():
        yield f"## {service}"
        yield ""
        yield "| metric | labels | meaning | high means |"
        yield "| --- | --- | --- | --- |"
        for one in some:
            kind = type(one).__name__.lower()
            labels = ", ".join(f"`{label.name}`" for label in one.labels)
            yield f"| `{one.name}` ({kind}) | {labels} | {_cell(one.meaning)} | {_cell(one.high)} |"
        yield ""


def tables() -> Iterator[str]:
    """Each table with its columns."""
    for table in metadata.sorted_tables:
        yield f"### {table.name}"
        yield ""
        yield str(table.comment)
        yield ""
        yield "| column | type | meaning |"
        yield "| --- | --- | --- |"
        for column in table.columns:
            type_, *collation = column.type.compile(dialect=postgresql.dialect()).partition(" COLLATE ")
            yield f"| `{column.name}` | {type_.lower()}{''.join(collation)} | {_cell(column.comment)} |"
        yield ""


def views() -> Iterator[str]:
    """Each view with its comment, then the columns of each."""
    made = _Made()
    yield "| view | meaning |"
    yield "| --- | --- |"
    for name, comment in sorted(made.views.items()):
        yield f"| `{name}` | {_cell(comment)} |"
    for name in sorted(made.views):
        yield ""
        yield f"### {name}"
        yield ""
        yield "| column | meaning |"
        yield "| --- | --- |"
        for column, comment in made.columns[name].items():
            yield f"| `{column}` | {_cell(comment)} |"


def functions() -> Iterator[str]:
    """Each function with its parameters and its comment."""
    made = _Made()
    yield "| function | parameters | meaning |"
    yield "| --- | --- | --- |"
    for name, comment in sorted(made.functions.items()):
        yield f"| `{name}` | {made.parameters[name]} | {_cell(comment)} |"


class _Made:
    """The views and functions that the migrations make, with their comments. A later migration may make one again, or
    comment on it anew."""

    def __init__(self) -> None:
        self.views: dict[str, str] = {}
        self.columns: dict[str, dict[str, str]] = {}
        self.functions: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        for file in sorted(SQL.rglob("*.sql")):
            for statement in STATEMENT.findall(file.read_text(encoding="utf-8")):
                self._take(*statement)

    def _take(
        self, kind: str, name: str, literals: str, dropped: str, function: str, parameters: str
    ) -> None:
        comment = "".join(re.findall(r"'((?:[^']|'')*)'", literals)).replace("''", "'")
        match kind:
            case "VIEW":
                self.views[name] = comment
            case "COLUMN":
                relation, column = name.replace('"', "").split(".")
                self.columns.setdefault(relation, {})[column] = comment
            case "FUNCTION" | "PROCEDURE":
                self.functions[name] = comment
            case _ if dropped:
                self.columns.pop(dropped)
            case _:
                found = [one for part in parameters.split(",") for one in PARAMETER.findall(part)]
                signature = ", ".join(type_ for _, type_, _ in found)
                self.parameters[f"{function}({signature})"] = ", ".join(
                    f"`{one}` (optional)" if default else f"`{one}`" for one, _, default in found
                )


PYTHON = {
    "frameledger_services.client": (
        *("Client", "SyncClient", "HttpClient", "SyncHttpClient"),
        *("PublishedFrame", "StoredFrame", "StoredContext"),
    ),
    "frameledger_services.functions": (
        *("FunctionService", "FunctionRegistry", "tool_options", "FunctionCallParams"),
    ),
    "frameledger_services.inference": ("InferenceService",),
    "frameledger_services.providers": ("LLMService", "LLMAdapter"),
}
"""The names of an application's programs, by the module from which they import them."""


def python() -> Iterator[str]:
    """Each class and function for applications, with its fields and its public methods, and what they promise."""
    for module, names in PYTHON.items():
        yield f"## {module}"
        yield ""
        for name in names:
            shown = getattr(import_module(module), name)
            yield f"### {name}"
            yield ""
            yield from _described(name, shown)
            if not inspect.isclass(shown):
                continue
            for field, meaning in _fields(shown):
                yield f"- `{field}`: {meaning}"
            yield ""
            for method, found in inspect.getmembers(shown, inspect.isroutine):
                if not method.startswith("_") and inspect.getdoc(found):
                    yield f"#### {name}.{method}"
                    yield ""
                    yield from _described(method, found)


def _described(name: str, shown: Any) -> Iterator[str]:
    """How it is called, and its docstring."""
    takes = str(inspect.signature(shown)).replace("(self, ", "(").replace("(self)", "()")
    # Annotations are texts, and some defaults are objects that have none.
    takes = re.sub(r"<[^<>]*>", "...", re.sub(r"(: |-> )'([^']*)'", r"\1\2", takes)).removesuffix(" -> None")
    yield f"```python\n{name}{takes}\n```"
    yield ""
    yield inspect.getdoc(shown) or ""
    yield ""


def _fields(shown: type) -> Iterator[tuple[str, str]]:
    """The fields of a class that have a docstring, which stands behind each of them."""
    [definition] = ast.parse(inspect.getsource(shown)).body
    assert isinstance(definition, ast.ClassDef)
    for field, behind in pairwise(definition.body):
        match field, behind:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")


LISTS = {
    "settings": settings,
    "commands": commands,
    "log_events": log_events,
    "metrics": metrics,
    "tables": tables,
    "views": views,
    "functions": functions,
    "python": python,
}

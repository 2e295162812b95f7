"""Writes `services/errors.md`, the list of all errors, from the docstrings of their classes.

`.venv/bin/python infra/docs/errors.py` writes the page; with `--check` it writes nothing, and fails if it is outdated.
The first paragraph of a class's docstring says when the error is raised, the last one, `Remedy: ...`, what to do. The
program parses the sources and does not import them, so no extra has to be installed.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "services" / "errors.md"
PACKAGES = {"frameledger": ROOT / "events", "frameledger_services": ROOT / "services"}
TOP = "FrameledgerError"
KINDS = {
    "TransientError": "Transient: try again",
    "RefusedError": "Refused: fix the input",
    "NotFoundError": "Not found",
    "ConfigurationError": "Configuration: an operator has to act",
    "FencedError": "Fenced: stop, another process owns it",
}
FACES = ("frameledger_services.client", "frameledger_services.functions", "frameledger_services.providers")
"""Packages that export errors to applications."""

HAS_ONE = re.compile(r"\bclass \w+\([^:]*(Error|Exception)\b")

INTRODUCTION = """\
# Errors

*Generated from the classes by `.venv/bin/python infra/docs/errors.py`. Edit their docstrings, not this page.*

Every error of Frameledger is a `FrameledgerError`. Its class tells the caller what to do:

```text
FrameledgerError
├── TransientError       retry
├── RefusedError         fix the input
├── NotFoundError        request something that exists (also a LookupError)
├── ConfigurationError   change settings, database, topics or machine
└── FencedError          stop: another process owns it
```

All six are in `frameledger.errors`. Wrong calls raise Python's own errors (TypeError, ValueError, RuntimeError), and
any other exception is a bug. Services retry after transient errors by themselves. Each table starts with the errors
that the client, function services and providers export to applications; the others appear in logs and on the command
line.
"""


@dataclass(frozen=True)
class Error:
    """An error class, as parsed from its source."""

    name: str
    module: str
    bases: tuple[str, ...]
    docstring: str

    @property
    def cause(self) -> str:
        """When it is raised: the first paragraph."""
        return self._paragraphs()[0]

    @property
    def remedy(self) -> str:
        """What to do: the last paragraph. Raises KeyError if it is not a remedy."""
        last = self._paragraphs()[-1]
        if not last.startswith("Remedy: "):
            raise KeyError(f"{self.module}.{self.name} does not end with a paragraph `Remedy: ...`")
        return last.removeprefix("Remedy: ")

    def _paragraphs(self) -> list[str]:
        return [" ".join(one.split()) for one in cleandoc(self.docstring).split("\n\n")]


@cache
def exceptions() -> tuple[Error, ...]:
    """All exception classes except those of the bench, including private ones."""
    found = []
    for package, folder in PACKAGES.items():
        for path in sorted((folder / package).rglob("*.py")):
            module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            source = path.read_text(encoding="utf-8")
            # Most modules have none, and parsing them would take most of the time.
            if not module.startswith("frameledger_services.bench.") and HAS_ONE.search(source):
                found += _classes(module, ast.parse(source))
    return tuple(found)


def ancestors(error: Error) -> set[str]:
    """The names of all base classes of an error; for our own classes also their bases."""
    known = {one.name: one for one in exceptions()}
    names = set(error.bases)
    for base in error.bases:
        if base in known:
            names |= ancestors(known[base])
    return names


def listed() -> list[Error]:
    """The errors on the page: all public errors of ours except the six kinds."""
    return [
        one for one in exceptions() if TOP in ancestors(one) and one.name not in KINDS and one.name[0] != "_"
    ]


def page() -> str:
    """The text of the page."""
    return INTRODUCTION + "\n".join(_lines())


def _lines() -> Iterator[str]:
    for kind, title in KINDS.items():
        yield from _table(title, [one for one in listed() if kind in ancestors(one)])
    families = [one for one in listed() if not ancestors(one) & KINDS.keys()]
    yield ""
    yield "## Families"
    yield ""
    yield "Classes whose members are of several kinds; `except` with the class catches all of them:"
    yield ""
    for family in families:
        members = sorted(one.name for one in listed() if family.name in ancestors(one))
        yield f"- `{family.name}` from {_source(family)}: {', '.join(f'`{one}`' for one in members)}"
    yield ""


def _table(title: str, errors: list[Error]) -> Iterator[str]:
    yield ""
    yield f"## {title}"
    yield ""
    yield "| error | import from | when | remedy |"
    yield "| --- | --- | --- | --- |"
    for one in sorted(errors, key=lambda one: (_face(one) is None, one.name)):
        yield f"| `{one.name}` | {_source(one)} | {_cell(one.cause)} | {_cell(one.remedy)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _source(error: Error) -> str:
    return f"`{_face(error) or error.module}`"


def _face(error: Error) -> str | None:
    return next((face for face in FACES if error.name in _exported(face)), None)


@cache
def _exported(package: str) -> frozenset[str]:
    path = ROOT / "services" / package.replace(".", "/") / "__init__.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


def _classes(module: str, tree: ast.Module) -> Iterator[Error]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases)
            if any(base.endswith(("Error", "Exception")) for base in bases):
                yield Error(node.name, module, bases, ast.get_docstring(node) or "")


def main(arguments: list[str]) -> int:
    """Returns the exit status: 1 if the page was out of date and `--check` was given."""
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    if arguments == ["--check"]:
        print(f"out of date: {PAGE.relative_to(ROOT)}", file=sys.stderr)
        return 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

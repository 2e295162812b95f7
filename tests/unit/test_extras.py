"""The extras: those in the package metadata match the imports, and a missing one gives a clear error."""

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import files as installed_files
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from frameledger.errors import ConfigurationError
from frameledger_services import extras
from frameledger_services.extras import MODULES, MissingExtraError

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = {"frameledger", "frameledger_services"}
# They come with those that we name, which promise them.
TOGETHER = {"annotated_types": "pydantic", "pydantic_core": "pydantic", "mako": "alembic"}
# Imported where it is there, and done without where it is not.
OPTIONAL = {"uvloop"}
SEPARATE = {"pipecat", "agents"}
"""Extras that `all` does not include, for the reasons in `pyproject.toml`."""

# Of several distributions, each of which brings a part: `MODULES` names these parts.
NAMESPACES = {module.split(".")[0] for modules in MODULES.values() for module in modules if "." in module}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


@cache
def distributions() -> Mapping[str, list[str]]:
    """Which distributions bring each module: all that is installed is read for that."""
    return packages_distributions()


@cache
def distribution(module: str) -> str:
    """The one that brings a module; of a part of a namespace, the one that has its file."""
    top, *parts = module.split(".")
    if not parts:
        return canonicalize_name(distributions()[top][0])
    files = {f"{'/'.join((top, *parts))}{end}" for end in (".py", "/__init__.py")}
    having = [
        name
        for name in set(distributions()[top])
        if not files.isdisjoint(str(file) for file in installed_files(name) or ())
    ]
    assert len(having) == 1, (module, having)
    return canonicalize_name(having[0])


def imported() -> set[str]:
    """The top-level modules of others that our code imports anywhere; of namespaces, the modules in them."""
    found = set()
    for file in (*ROOT.glob("events/frameledger/**/*.py"), *ROOT.glob("services/**/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {shortened(alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                if node.module in NAMESPACES:
                    found |= {f"{node.module}.{alias.name}" for alias in node.names}
                else:
                    found.add(shortened(node.module))
    return found - sys.stdlib_module_names - OURS


def shortened(module: str) -> str:
    top = module.split(".")[0]
    return module if top in NAMESPACES else top


def test_every_extra_names_the_modules_that_it_brings() -> None:
    of_extras = PROJECT["optional-dependencies"]
    assert list(of_extras) == [*MODULES, "all"], "the extras of pyproject.toml and MODULES differ"
    together = [extra for extra in MODULES if extra not in SEPARATE]
    assert of_extras["all"] == [f"frameledger[{','.join(together)}]"], (
        "`all` of pyproject.toml lacks an extra"
    )
    for extra in together:
        modules = MODULES[extra]
        assert {distribution(module) for module in modules} == names(of_extras[extra]) - OPTIONAL, extra


@pytest.mark.parametrize(
    ("extra", "needs_it"),
    [
        ("pipecat", "frameledger_services.pipecat.observer"),
        ("agents", "frameledger_services.agents_sdk.run_hooks"),
    ],
)
def test_what_all_does_not_bring_is_in_no_lock_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, extra: str, needs_it: str
) -> None:
    assert extra in SEPARATE
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for name in names(PROJECT["optional-dependencies"][extra]):
        assert not re.search(rf"^{re.escape(name)}==", lock, re.MULTILINE)
    for module in MODULES[extra]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, needs_it, raising=False)
    with pytest.raises(MissingExtraError, match=re.escape(f"pip install 'frameledger[{extra}]'")):
        importlib.import_module(needs_it)


def test_what_is_imported_belongs_to_the_base_or_to_an_extra() -> None:
    base = names(PROJECT["dependencies"])
    of_extras = {module for modules in MODULES.values() for module in modules} | OPTIONAL
    rest = {TOGETHER.get(module, module) for module in imported()} - of_extras
    parts = {module for module in rest if "." in module}
    # More on the left: add the module to an extra, in pyproject.toml and in MODULES of extras.py.
    assert {distribution(module) for module in rest - parts} == base
    of_some_extra = {name for extra in MODULES for name in names(PROJECT["optional-dependencies"][extra])}
    assert {distribution(module) for module in parts} <= of_some_extra


def test_a_failed_import_of_an_extra_s_module_names_the_extra() -> None:
    with pytest.raises(MissingExtraError) as missing, extras.needed():
        raise ModuleNotFoundError("No module named 'rich'", name="rich.table")
    assert str(missing.value) == "rich is not installed: pip install 'frameledger[cli]'"
    assert isinstance(missing.value, ConfigurationError)
    with (
        pytest.raises(
            MissingExtraError, match=re.escape("'frameledger[openai]' or 'frameledger[anthropic]'")
        ),
        extras.needed(),
    ):
        raise ModuleNotFoundError("No module named 'httpx'", name="httpx")


def test_a_part_of_a_namespace_is_missing_also_where_the_namespace_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(MODULES, "otel", ("opentelemetry.nowhere", "opentelemetry.nowhere.below"))
    assert not extras.is_installed("otel")
    monkeypatch.setitem(MODULES, "otel", ("nowhere.below",))
    assert not extras.is_installed("otel")


def test_any_other_failed_import_stays_what_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="my_tools") as failed, extras.needed():
        raise ModuleNotFoundError("No module named 'my_tools'", name="my_tools")
    assert not isinstance(failed.value, MissingExtraError)


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.check(*(extra for extra in MODULES if extra not in SEPARATE))
    monkeypatch.setattr(
        extras, "find_spec", lambda module: None if module in {"psutil", "structlog"} else object()
    )
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'frameledger[services,embedded]'")):
        extras.check("cli", "services", "embedded")

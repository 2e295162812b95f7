"""Loads an application's functions from its module, for the command line."""

from __future__ import annotations

import importlib
import itertools
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frameledger.errors import ConfigurationError, FrameledgerError
from frameledger_services.functions.registry import FunctionRegistry

REGISTRY = "registry"
RESOURCES = "app_resources"

_OURS = str(Path(__file__).parent)


class ModuleError(ConfigurationError):
    """A module of functions cannot be imported, or registers no functions.

    Remedy: Fix the module that the message names, or pass another one.
    """


@dataclass(frozen=True, slots=True)
class AppModule:
    """The registry and the resources that a module of functions defines."""

    registry: FunctionRegistry
    app_resources: Any = None


def load(module: str) -> AppModule:
    """Import a module, also from the current directory. Returns its `registry` and its optional `app_resources`.

    Raises `ModuleError`. If the module raises an error itself, the message has the traceback, from the module on.
    """
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        # The module may still be an installed one.
        here = "the working directory, which was deleted"
    else:
        if here not in sys.path:
            sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        # An imported program runs to its end, and exits.
        raise ModuleError(_why(module, error, here)) from error
    registry = getattr(imported, REGISTRY, None)
    if not isinstance(registry, FunctionRegistry):
        raise ModuleError(
            f"The module {module!r} has no {REGISTRY}. Write `{REGISTRY} = FunctionRegistry()` in it, and "
            f"`@{REGISTRY}.register_direct_function` above each function."
        )
    if not registry.serves() and not registry.serves_all:
        raise ModuleError(f"The {REGISTRY} of the module {module!r} has no functions.")
    return AppModule(registry, getattr(imported, RESOURCES, None))


def _why(module: str, error: BaseException, here: str) -> str:
    """Returns why a module was not imported: it does not exist, or it raised this error."""
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return (
            f"There is no module {module!r}, neither installed nor in {here}. Write the name as in an import "
            "statement: `my_tools` for my_tools.py."
        )
    if isinstance(error, TypeError) and module.startswith("."):
        return f"The module name {module!r} is relative. Use an absolute name."
    trace = traceback.TracebackException.from_exception(error)
    # Omit this file and the import machinery, which come before the module. An error that Frameledger raises is about
    # the line that calls it, so its own lines are omitted too.
    own = (__file__, importlib.__file__, "<frozen importlib")
    trace.stack[:] = itertools.dropwhile(lambda frame: frame.filename.startswith(own), trace.stack)
    if isinstance(error, FrameledgerError):
        trace.stack[:] = [frame for frame in trace.stack if not frame.filename.startswith(_OURS)]
    return f"The module {module!r} cannot be imported:\n{''.join(trace.format())}".rstrip()

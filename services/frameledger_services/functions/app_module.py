"""Loading the functions of an application from its module, for the command line."""

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
    """A module of functions cannot be imported, or has no functions.

    Remedy: Mend the module, or name another one: the message says which.
    """


@dataclass(frozen=True, slots=True)
class AppModule:
    """What a module of functions defines."""

    registry: FunctionRegistry
    app_resources: Any = None


def load(module: str) -> AppModule:
    """Import a module, also from the current folder, and take its `registry`, and its `app_resources` if it has any.

    Raises `ModuleError`; of what the module itself raises it has the traceback, from the module on.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise ModuleError(_why(module, error, here)) from error
    registry = getattr(found, REGISTRY, None)
    if not isinstance(registry, FunctionRegistry):
        raise ModuleError(
            f"The module {module!r} has no {REGISTRY}. Write `{REGISTRY} = FunctionRegistry()` in it, and "
            f"`@{REGISTRY}.register_direct_function` above each function."
        )
    if not registry.serves() and not registry.serves_all:
        raise ModuleError(f"The {REGISTRY} of the module {module!r} has no functions.")
    return AppModule(registry, getattr(found, RESOURCES, None))


def _why(module: str, error: Exception, here: str) -> str:
    """Why a module was not imported: it is not there, or it raised this."""
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return (
            f"There is no module {module!r}, neither installed nor in {here}. It is given as in an import: "
            "`my_tools` for my_tools.py."
        )
    if isinstance(error, TypeError) and module.startswith("."):
        return f"{module!r} is relative, and there is nothing to be relative to."
    told = traceback.TracebackException.from_exception(error)
    # What comes before the module are this file and the machinery of imports. And what we refuse is about the line that
    # calls us, not about our own.
    own = (__file__, importlib.__file__, "<frozen importlib")
    told.stack[:] = itertools.dropwhile(lambda frame: frame.filename.startswith(own), told.stack)
    if isinstance(error, FrameledgerError):
        told.stack[:] = [frame for frame in told.stack if not frame.filename.startswith(_OURS)]
    return f"The module {module!r} cannot be imported:\n{''.join(told.format())}".rstrip()

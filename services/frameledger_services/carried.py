"""Where the data lies that the wheel carries along: the repository's folders `infra` and `migrations`, and of `events`
what other languages need: `frames.md`, `rules.md` and the JSON Schemas in `schemas/`.

In a checkout they are the folders themselves; in an installed wheel copies of them are inside this package, put
there by the build (`pyproject.toml`, section `tool.hatch.build.targets.wheel.force-include`).
"""

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).parent


def folder(name: Literal["events", "infra", "migrations"]) -> Path:
    """The folder of that name. It exists, or the installation is broken."""
    installed = _PACKAGE / f"_{name}"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / name

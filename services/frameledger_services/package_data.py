"""Data files of the wheel: the repository's folders `infra` and `migrations`, and from `events` what other languages
need: `frames.md`, `rules.md` and the JSON Schemas in `schemas/`.

In a checkout these are the folders themselves. In an installed wheel they are copies inside this package, which the
build puts there (`pyproject.toml`, section `tool.hatch.build.targets.wheel.force-include`).
"""

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).parent


def folder(name: Literal["events", "infra", "migrations"]) -> Path:
    """Returns the path of this folder. It exists unless the installation is broken."""
    installed = _PACKAGE / f"_{name}"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / name

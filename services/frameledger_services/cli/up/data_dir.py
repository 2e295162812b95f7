"""The data directory of `up` as an option, and the settings with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from frameledger_services.cli.terminal import output
from frameledger_services.settings import PREFIX, Settings, SettingsError
from frameledger_services.settings_sources import load

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Data directory. Default: FRAMELEDGER_DATA_DIR, else .frameledger."
    ),
]


def settings_of(data_dir: Path | None, *, look_for_running: bool) -> Settings:
    """Returns the effective settings, with this data directory if one is given. Ends the command if one is invalid or
    the data directory has no path."""
    try:
        # The settings file of that directory is read, too.
        from_option = {} if data_dir is None else {f"{PREFIX}DATA_DIR": str(data_dir)}
        settings = load({**os.environ, **from_option}, look_for_running=look_for_running).settings
        _ = settings.directory
    except SettingsError as error:
        output.fail(str(error), "See `frameledger config --help`.")
    return settings

"""`frameledger config`: all settings in force, and where each comes from."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer
from rich.table import Table

from frameledger_services.cli import output
from frameledger_services.settings import FILE, PREFIX, SECRETS, Settings, SettingsError, load, shown

commands = typer.Typer()


@commands.command()
def config(
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show all settings with their source; secrets are hidden.

    A setting is an environment variable. Secrets can also be put into a file, which the same name with _FILE names.
    What nobody set comes from a running `frameledger up`, or is a default. A variable that begins with FRAMELEDGER_ and
    is no setting is an error.

    Example: `FRAMELEDGER_DATABASE_URL_FILE=db.txt frameledger config`
    """
    try:
        loaded = load(os.environ)
    except SettingsError as error:
        output.refuse(str(error), "`frameledger config` without these variables lists all that there are.")
    fields = Settings.model_fields
    values = {name: shown(name, getattr(loaded.settings, name)) for name in fields}
    if as_json:
        listed = {
            PREFIX + name.upper(): {
                "value": values[name],
                "source": loaded.sources[name],
                "about": field.description,
                "file": f"{PREFIX}{name.upper()}{FILE}" if name in SECRETS else None,
            }
            for name, field in fields.items()
        }
        typer.echo(json.dumps(listed, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{PREFIX}...", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("source")
    for name in fields:
        table.add_row(name.upper(), values[name] or "-", loaded.sources[name])
    output.console().print(table)

"""`frameledger config`: all effective settings and their sources."""

from __future__ import annotations

import typer
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal import options, output
from frameledger_services.settings import PREFIX, Settings, SettingsError
from frameledger_services.settings_masking import SECRETS, masked
from frameledger_services.settings_sources import FILE, load

commands = typer.Typer()


@commands.command()
def config(
    as_json: options.AsJson = False,
) -> None:
    """Show every setting with its value, source and description. Secrets are hidden.

    Settings are environment variables. One that is not set is read from the file frameledger.env in the data directory
    (lines NAME=value), then from a running `frameledger up`, and else has its default. A secret can be read from a
    file: set the variable with the suffix _FILE to its path. A variable that begins with FRAMELEDGER_ and is not a
    setting is an error.

    Example: `FRAMELEDGER_DATABASE_URL_FILE=db.txt frameledger config`
    """
    try:
        loaded = load()
    except SettingsError as error:
        output.fail(str(error), "Unset these variables; `frameledger config` then lists all settings.")
    fields = Settings.model_fields
    values = {name: masked(name, getattr(loaded.settings, name)) for name in fields}
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
        typer.echo(output.json_text(listed, indent=2))
        return
    console = output.console()
    console.print(
        f"Settings file: {loaded.file}{'' if loaded.file.exists() else ', which does not exist'}", ""
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, field in fields.items():
        line = Text.assemble(values[name] or "-", (f"  ({loaded.sources[name]})", "cyan"))
        table.add_row(f"{PREFIX}{name.upper()}", line.append(f"\n{field.description}", "dim"))
    console.print(table)

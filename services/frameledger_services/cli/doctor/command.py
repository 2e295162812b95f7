"""`frameledger doctor`: is everything as it should be, and if not, what is to be done?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.doctor import checks
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.terminal import options, output, render_context
from frameledger_services.settings import Settings, SettingsError

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}

commands = typer.Typer()


@commands.command()
def doctor(
    as_json: options.AsJsonLines = False,
) -> None:
    """Look at everything, and say what is wrong, what it means and what to do.

    Looked at are the settings, the key of the provider that is to answer, the disk, the broker and its topics, the
    database and its tables, whether projectors read every partition and get on, what is parked or was set aside,
    whether somebody takes the runs and calls that are open and ends what is overdue, and how clients partition. It
    changes nothing. Ends with exit code 1 if anything fails; a warning is no failure.

    Example: `frameledger doctor --json`
    """
    try:
        settings = Settings.from_env()
    except SettingsError as error:
        remedy = "Mend it; `frameledger config` without it lists all settings."
        found = [Finding("settings", "fail", problem, remedy) for problem in error.problems]
    else:
        found = [Finding("settings", "ok", "They can be read."), *asyncio.run(_findings(settings))]
    if as_json:
        output.print_json(found)
    else:
        _print(found, output.console())
    if any(finding.state == "fail" for finding in found):
        raise typer.Exit(1)


async def _findings(settings: Settings) -> list[Finding]:
    # A finding says what aiokafka would log about a broker that is away.
    log = logging.getLogger("aiokafka")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return [finding async for finding in checks.findings(settings)]
    finally:
        log.setLevel(before)


def _print(found: Iterable[Finding], console: Console) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in found:
        said = render_context.text(finding.found)
        if finding.remedy and finding.state != "ok":
            said.append(f"\n{finding.remedy}", "dim")
        table.add_row(Text(finding.state, _COLOURS[finding.state]), finding.check, said)
    console.print(table)

"""`frameledger doctor`: checks of the whole installation."""

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
    """Check the whole installation, and print each problem with its meaning and its remedy.

    Checks the settings, the provider's key, disk space, the broker and its topics, the database and its schema, whether
    projectors read every partition and advance, parked conversations and dead letters, whether open runs and calls are
    served and their timeouts enforced, and how publishers partition. Changes nothing. Exit code 1 if a check fails;
    warnings do not count.

    Example: `frameledger doctor --json`
    """
    try:
        settings = Settings.from_env()
        # Several checks read it.
        _ = settings.directory
    except SettingsError as error:
        remedy = "Correct or unset it; `frameledger config` then lists all settings."
        findings = [Finding("settings", "fail", problem, remedy) for problem in error.problems]
    else:
        findings = [Finding("settings", "ok", "All settings are valid."), *asyncio.run(_findings(settings))]
    if as_json:
        output.print_json(findings)
    else:
        _print(findings, output.console())
    if any(finding.state == "fail" for finding in findings):
        raise typer.Exit(1)


async def _findings(settings: Settings) -> list[Finding]:
    # aiokafka's log lines about an unreachable broker repeat a finding.
    log = logging.getLogger("aiokafka")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        return [finding async for finding in checks.findings(settings)]
    finally:
        log.setLevel(before)


def _print(findings: Iterable[Finding], console: Console) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = render_context.text(finding.found)
        if finding.remedy and finding.state != "ok":
            text.append(f"\n{finding.remedy}", "dim")
        table.add_row(Text(finding.state, _COLOURS[finding.state]), finding.check, text)
    console.print(table)

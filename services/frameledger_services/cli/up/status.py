"""`frameledger status`: the processes of `up`, and the lag of the partitions."""

from __future__ import annotations

import time

import typer

from frameledger_services.cli.terminal import options, output
from frameledger_services.cli.up import lag
from frameledger_services.cli.up.data_dir import DataDir, settings_of
from frameledger_services.cli.up.report import report as report_of
from frameledger_services.cli.up.report import status_page

commands = typer.Typer()


@commands.command()
def status(
    data_dir: DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """List every process with its pid, address, state and uptime, and the lag of each partition.

    The gap is in records and the lag in time, at the projector's latest check; `frameledger doctor` checks the log
    itself. Exit code 1 if a process is not running.

    Example: `frameledger status --json`
    """
    from frameledger_services.embedded.record import read_record

    settings = settings_of(data_dir, look_for_running=False)
    directory = settings.directory
    report = report_of(directory, read_record(directory), now=time.time())
    partitions = lag.reach(settings)
    if as_json:
        values = report.model_dump(mode="json") | {"partitions": lag.as_json(partitions)}
        typer.echo(output.json_text(values, indent=2))
    else:
        output.print_whole(output.console(), status_page(report))
        if partitions:
            output.console().print("", lag.table(partitions), sep="\n")
    if not report.running:
        raise typer.Exit(1)

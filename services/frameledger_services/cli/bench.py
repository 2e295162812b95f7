"""`frameledger bench`: how fast the parts are, held to goals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from frameledger.record import DecodeError
from frameledger_services.bench import core as core_bench
from frameledger_services.bench import report
from frameledger_services.cli import output

RECORDED = Path(__file__).parents[3] / "tests" / "histories"
"""The project's own histories, where this package runs from a checkout."""

commands = typer.Typer(name="bench", no_args_is_help=True)


@commands.callback()
def about() -> None:
    """How fast the parts are. Every figure has a yardstick, measured in the same run, and a goal."""


@commands.command()
def core(
    histories: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of NAME.jsonl files, one frame on each line, to decode and fold. "
            "The project's own in a checkout.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often everything is measured; the median counts.")
    ] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """Decoding and folding, without any server.

    Ends with exit code 1 if a goal is missed. Takes some seconds; what else the machine does has little influence,
    since a figure and its yardstick are measured in turns and only their ratio counts.
    """
    folder = RECORDED if histories is None else histories
    stream = core_bench.histories(folder)
    if not stream:
        output.refuse(
            f"There are no histories (*.jsonl) in {folder}.",
            "Say where some are: frameledger bench core --histories DIR",
        )
    try:
        figures = core_bench.measure(stream, rounds)
    except DecodeError as error:
        output.refuse(
            f"A line of the histories in {folder} is no frame: {error}",
            "`frameledger fold FILE.jsonl` shows which.",
        )
    if as_json:
        typer.echo(report.as_json(figures))
    else:
        output.console().print(report.as_table(figures))
    if not all(figure.ok for figure in figures):
        raise typer.Exit(1)

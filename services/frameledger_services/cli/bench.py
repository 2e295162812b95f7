"""`frameledger bench`: how fast the parts are, held to goals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from frameledger.record import DecodeError
from frameledger_services.bench import core as core_bench
from frameledger_services.bench import report
from frameledger_services.bench.report import Figure
from frameledger_services.cli import output
from frameledger_services.settings import SettingsError, load

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
    _tell(figures, as_json)


@commands.command()
def road(
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Measure only this; may be given again. "
            "One of throughput, latency, flatness, sizes, memory, reading.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A little of everything: whether it works, not how well.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")] = False,
) -> None:
    """The road from publish to SQL, on a real Kafka and a real PostgreSQL.

    They are started in a temporary folder and are gone afterwards; with FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS and
    FRAMELEDGER_DATABASE_URL set, topics and databases are made on those servers, which have to be on this machine,
    and removed again. Takes some minutes. Ends with exit code 1 if a goal is missed.

    Example: `frameledger bench road --only throughput`
    """
    # Imported here: this needs aiokafka and psycopg, and whoever asks for help does not.
    from frameledger_services.bench.road import figures as road_bench
    from frameledger_services.bench.road.processes import BenchError
    from frameledger_services.bench.road.servers import servers
    from frameledger_services.embedded.program import EmbeddedError

    names = only or list(road_bench.MEASURES)
    for name in names:
        if name not in road_bench.MEASURES:
            raise typer.BadParameter(f"{name} is none of {', '.join(road_bench.MEASURES)}.")
    scale = road_bench.QUICK if quick else road_bench.Scale()
    try:
        with servers(load(os.environ, look_for_running=False).settings) as ours:
            figures = asyncio.run(road_bench.measure(ours, names, scale))
    except EmbeddedError as error:
        output.refuse(error.problem, error.remedy)
    except SettingsError as error:
        output.refuse(str(error), "`frameledger config` shows what is set.")
    except BenchError as error:
        output.refuse(str(error), "What it said is above.")
    # What so little says about speed is no reason to fail.
    _tell(figures, as_json, goals_count=not quick)


def _tell(figures: Sequence[Figure], as_json: bool, *, goals_count: bool = True) -> None:
    if as_json:
        typer.echo(report.as_json(figures))
    else:
        output.console().print(report.as_table(figures))
    if goals_count and not all(figure.ok for figure in figures):
        raise typer.Exit(1)

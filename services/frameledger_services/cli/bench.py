"""`frameledger bench`: performance measurements with goals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from frameledger.record import DecodeError
from frameledger_services.bench import core as core_bench
from frameledger_services.bench import report
from frameledger_services.bench.report import Figure
from frameledger_services.cli.terminal import output
from frameledger_services.settings import Settings, SettingsError

if TYPE_CHECKING:
    from frameledger_services.bench.measures import Measures

RECORDED = Path(__file__).parents[3] / "tests" / "histories"
"""The project's own histories, in a checkout."""

S = TypeVar("S")
"""The scale of a bench: how much it measures."""

commands = typer.Typer(name="bench", no_args_is_help=True)

Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Only this measurement. Repeatable. An unknown name lists the names."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A short run that tests the bench itself; goals are not checked.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")]


@commands.callback()
def about() -> None:
    """Measure performance. Each figure is compared with a yardstick measured in the same run; most have a goal."""


@commands.command()
def core(
    histories: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of NAME.jsonl files with one frame per line, to decode and fold. Default in a checkout: the "
            "project's own.",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="Number of measurements, of which the median is used.")
    ] = 60,
    as_json: Json = False,
) -> None:
    """Measure decoding and folding, without any server.

    Exit code 1 if a goal is missed. Takes some seconds. Other load has little influence, because a figure and its
    yardstick are measured alternately and only their ratio is used.
    """
    folder = RECORDED if histories is None else histories
    stream = core_bench.histories(folder)
    if not stream:
        output.fail(
            f"There are no histories (*.jsonl) in {folder}.",
            "Give a folder that has some: frameledger bench core --histories DIR",
        )
    try:
        figures = core_bench.measure(stream, rounds)
    except DecodeError as error:
        output.fail(
            f"A line of the histories in {folder} is not a valid frame: {error}",
            "`frameledger fold FILE.jsonl` shows which.",
        )
    _print_figures(figures, as_json)


# The others need aiokafka and psycopg, which are imported when they run and not for their help.


@commands.command()
def road(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Measure the path from publish to SQL, on a real Kafka and a real PostgreSQL.

    The servers run in a temporary folder and are removed afterwards. With FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS and
    FRAMELEDGER_DATABASE_URL, topics and databases are created on those servers, which must be on this machine, and
    removed afterwards. Takes some minutes. Exit code 1 if a goal is missed.

    Example: `frameledger bench road --only throughput`
    """
    from frameledger_services.bench.road import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def inference(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Measure model answers through the whole system, compared with the official SDK in a plain loop.

    The model is a server of this bench that streams 60 tokens per second. Uses servers like `frameledger bench road`;
    takes about ten minutes on an idle machine. Exit code 1 if a goal is missed.

    Example: `frameledger bench inference --only interruptions`
    """
    from frameledger_services.bench.inference import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def functions(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Measure function calls through the whole system, compared with bare Kafka and PostgreSQL, and their memory.

    Uses servers like `frameledger bench road`; takes some minutes. Exit code 1 if a goal is missed.

    Example: `frameledger bench functions --only latency`
    """
    from frameledger_services.bench.functions import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def audit(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Measure verifying, rebuilding, and the response times of queries about a conversation.

    Uses servers like `frameledger bench road`; takes some minutes. Response times have goals in milliseconds, for an
    idle machine. Exit code 1 if a goal is missed.

    Example: `frameledger bench audit --only verify`
    """
    from frameledger_services.bench.audit import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def gateway(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Measure HTTP: appends compared with `Client`; reads and live streams compared with a bare ASGI app.

    Uses servers like `frameledger bench road`; takes some minutes. The latency from COMMIT to a client has a goal in
    milliseconds, for an idle machine. Exit code 1 if a goal is missed.

    Example: `frameledger bench gateway --only streams`
    """
    from frameledger_services.bench.gateway import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def telemetry(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Measure the cost of metrics and traces: batches, a projector and workers with and without them.

    Metrics are scraped like Prometheus does, and one in a hundred traces is recorded, also with an unreachable
    collector. Uses servers like `frameledger bench road`; takes a quarter of an hour. Exit code 1 if a goal is missed.

    Example: `frameledger bench telemetry --only projector`
    """
    from frameledger_services.bench.telemetry import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


def _on_servers(
    measures: Measures[S],
    scale: S,
    only: Sequence[str] | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Run the selected measurements, or all, and print the figures."""
    from frameledger_services.bench.road.processes import BenchError
    from frameledger_services.bench.road.servers import servers
    from frameledger_services.embedded.program import EmbeddedError

    names = only or list(measures)
    for name in names:
        if name not in measures:
            raise typer.BadParameter(f"{name} is not one of {', '.join(measures)}.")

    async def measured() -> Sequence[Figure]:
        return [figure for name in names for figure in await measures[name](ours, scale)]

    try:
        with servers(Settings.from_env(look_for_running=False)) as ours:
            figures = asyncio.run(measured())
    except EmbeddedError as error:
        output.fail(error.problem, error.remedy)
    except SettingsError as error:
        output.fail(str(error), "`frameledger config` shows the settings.")
    except BenchError as error:
        output.fail(str(error), "Its output is above.")
    # A quick run says too little about speed to check goals.
    _print_figures(figures, as_json, goals_count=not quick)


def _print_figures(figures: Sequence[Figure], as_json: bool, *, goals_count: bool = True) -> None:
    if as_json:
        typer.echo(report.as_json(figures))
    else:
        output.console().print(report.as_table(figures))
    if goals_count and not all(figure.ok for figure in figures):
        raise typer.Exit(1)

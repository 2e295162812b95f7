"""`frameledger bench`: how fast the parts are, held to goals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    from frameledger_services.bench.road.servers import Servers

RECORDED = Path(__file__).parents[3] / "tests" / "histories"
"""The project's own histories, where this package runs from a checkout."""

S = TypeVar("S")
"""How much a bench measures: its `Scale`."""

commands = typer.Typer(name="bench", no_args_is_help=True)

Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Measure only this; may be given again. A wrong name says which there are."
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="A little of everything: whether it works, not how well.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON list instead of a table.")]


@commands.callback()
def about() -> None:
    """How fast the parts are. Every figure has a yardstick, measured in the same run, and most have a goal."""


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
    as_json: Json = False,
) -> None:
    """Decoding and folding, without any server.

    Ends with exit code 1 if a goal is missed. Takes some seconds; what else the machine does has little influence,
    since a figure and its yardstick are measured in turns and only their ratio counts.
    """
    folder = RECORDED if histories is None else histories
    stream = core_bench.histories(folder)
    if not stream:
        output.fail(
            f"There are no histories (*.jsonl) in {folder}.",
            "Say where some are: frameledger bench core --histories DIR",
        )
    try:
        figures = core_bench.measure(stream, rounds)
    except DecodeError as error:
        output.fail(
            f"A line of the histories in {folder} is no frame: {error}",
            "`frameledger fold FILE.jsonl` shows which.",
        )
    _tell(figures, as_json)


# The others need aiokafka and psycopg, which are imported when they are asked for: whoever asks for help does not.


@commands.command()
def road(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """The road from publish to SQL, on a real Kafka and a real PostgreSQL.

    They are started in a temporary folder and are gone afterwards; with FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS and
    FRAMELEDGER_DATABASE_URL set, topics and databases are made on those servers, which have to be on this machine,
    and removed again. Takes some minutes. Ends with exit code 1 if a goal is missed.

    Example: `frameledger bench road --only throughput`
    """
    from frameledger_services.bench.road import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def inference(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Answers of a model over the whole road, beside the official SDK in a bare loop.

    The model is a server of this bench that writes 60 tokens a second. On servers as `frameledger bench road` has
    them; takes about ten minutes on a quiet machine. Ends with exit code 1 if a goal is missed.

    Example: `frameledger bench inference --only interruptions`
    """
    from frameledger_services.bench.inference import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def functions(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Function calls over the whole road, beside the bare road, and the memory of a crowd of them.

    On servers as `frameledger bench road` has them; takes some minutes. Ends with exit code 1 if a goal is missed.

    Example: `frameledger bench functions --only latency`
    """
    from frameledger_services.bench.functions import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def audit(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """Asking what happened: verifying, rebuilding, and how long a person waits who asks about a conversation.

    On servers as `frameledger bench road` has them; takes some minutes. What a person waits for is held to
    milliseconds of a quiet machine. Ends with exit code 1 if a goal is missed.

    Example: `frameledger bench audit --only verify`
    """
    from frameledger_services.bench.audit import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def gateway(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """HTTP: appends beside `Client`, reads and live streams beside a bare ASGI app that sends the same bytes.

    On servers as `frameledger bench road` has them; takes some minutes. From COMMIT to a client is held to milliseconds
    of a quiet machine. Ends with exit code 1 if a goal is missed.

    Example: `frameledger bench gateway --only streams`
    """
    from frameledger_services.bench.gateway import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


@commands.command()
def telemetry(only: Only = None, quick: Quick = False, as_json: Json = False) -> None:
    """What metrics and traces cost: batches, a projector and workers that are watched, beside the same without.

    Metrics are asked for as Prometheus asks, and a hundredth of the traces is recorded, also for a dead collector.
    On servers as `frameledger bench road` has them; takes a quarter of an hour. Ends with exit code 1 if a goal is
    missed.

    Example: `frameledger bench telemetry --only projector`
    """
    from frameledger_services.bench.telemetry import figures as bench

    _on_servers(bench.MEASURES, bench.QUICK if quick else bench.Scale(), only, quick, as_json)


def _on_servers(
    measures: Mapping[str, Callable[[Servers, S], Awaitable[Sequence[Figure]]]],
    scale: S,
    only: Sequence[str] | None,
    quick: bool,
    as_json: bool,
) -> None:
    """Measure what is asked for, all that is known if nothing is, and tell it."""
    from frameledger_services.bench.road.processes import BenchError
    from frameledger_services.bench.road.servers import servers
    from frameledger_services.embedded.program import EmbeddedError

    names = only or list(measures)
    for name in names:
        if name not in measures:
            raise typer.BadParameter(f"{name} is none of {', '.join(measures)}.")

    async def measured() -> Sequence[Figure]:
        return [figure for name in names for figure in await measures[name](ours, scale)]

    try:
        with servers(Settings.from_env(look_for_running=False)) as ours:
            figures = asyncio.run(measured())
    except EmbeddedError as error:
        output.fail(error.problem, error.remedy)
    except SettingsError as error:
        output.fail(str(error), "`frameledger config` shows what is set.")
    except BenchError as error:
        output.fail(str(error), "What it said is above.")
    # What so little says about speed is no reason to fail.
    _tell(figures, as_json, goals_count=not quick)


def _tell(figures: Sequence[Figure], as_json: bool, *, goals_count: bool = True) -> None:
    if as_json:
        typer.echo(report.as_json(figures))
    else:
        output.console().print(report.as_table(figures))
    if goals_count and not all(figure.ok for figure in figures):
        raise typer.Exit(1)

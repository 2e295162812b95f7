"""`frameledger up`, `down` and `status`: the embedded servers and the services, as one thing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frameledger_services import extras, process
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.up import imports, lag, render
from frameledger_services.settings import GATEWAY_PORT, PREFIX, Settings, SettingsError
from frameledger_services.settings_sources import SETTINGS_FILE, load

if TYPE_CHECKING:
    from frameledger_services.embedded import stack
    from frameledger_services.embedded.forked import ForkServer

# The embedded servers are imported inside the commands: they are for Linux and macOS, the command line is for all.

SERVICES: tuple[tuple[str, ...], ...] = (("run", "projector"), ("run", "timekeeper"))
"""Commands that `up` keeps running, each in a process of its own."""

ANSWERING = ("run", "inference")
"""And this one too, if the settings name a provider."""

GATEWAY = ("run", "gateway")
"""And this one, if its extra is installed."""

METRICS_PORT = 18091
"""Of the first service; the others have those that follow. Any of them may be another one, if it is taken."""

NOBODY_ANSWERS = (
    "No model answers here: FRAMELEDGER_INFERENCE_PROVIDER (scripted, openai, anthropic) is set neither in the "
    "environment nor in {file}."
)

DOWN_WITHIN = 90.0
POLL = 0.05

commands = typer.Typer()

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Instead of FRAMELEDGER_DATA_DIR, which is .frameledger."),
]


@commands.command()
def up(
    data_dir: DataDir = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Give the terminal back when everything runs.")
    ] = False,
) -> None:
    """Start Kafka, PostgreSQL and all services, and keep them running.

    The servers are real ones, from packages, in one data directory; the first start fetches the broker's jars. With
    FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS or FRAMELEDGER_DATABASE_URL set it uses those instead. A model answers if
    FRAMELEDGER_INFERENCE_PROVIDER names whose. Ctrl-C stops everything; the data stays. Settings that hold in every
    terminal stand in the file frameledger.env of the data directory, a line NAME=value each.

    Example: `frameledger up --detach`
    """
    from frameledger_services.embedded.directory import free
    from frameledger_services.embedded.program import EmbeddedError

    settings = settings_of(data_dir, look_for_running=False)
    if settings.inference_provider is not None:
        _require_key(settings.inference_provider, settings)
    try:
        free(settings.data_dir.resolve())
        if settings.inference_provider is None:
            typer.echo(NOBODY_ANSWERS.format(file=settings.data_dir / SETTINGS_FILE))
        ready = _start_detached(settings) if detach else _run(settings)
    except EmbeddedError as error:
        output.fail(error.problem, error.remedy)
    if not ready:
        output.fail("Stopped before everything ran.", "Start it again with: frameledger up")


@commands.command()
def down(data_dir: DataDir = None) -> None:
    """Stop everything that `up` started here, also what a killed `up` left behind.

    Ends with exit code 0 when nothing runs any more, whether something ran before or not.

    Example: `frameledger down`
    """
    from frameledger_services.embedded.directory import claimed, is_claimed
    from frameledger_services.embedded.leftovers import end_leftovers
    from frameledger_services.embedded.program import EmbeddedError

    directory = settings_of(data_dir, look_for_running=False).data_dir.resolve()
    if not directory.is_dir():
        typer.echo(f"Nothing runs in {directory}: there is no such folder.")
        return
    try:
        stopped = is_claimed(directory)
        if stopped:
            _stop_supervisor(directory)
        with claimed(directory, least_space=0):
            left = end_leftovers(directory)
    except EmbeddedError as error:
        output.fail(error.problem, error.remedy)
    if left:
        typer.echo(f"Ended what a killed `up` had left: {', '.join(left)}.")
    elif stopped:
        typer.echo(f"Stopped. The data stays in {directory}.")
    else:
        typer.echo(f"Nothing runs in {directory}.")


@commands.command()
def status(
    data_dir: DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """List every process with its pid, address, state and uptime, and how far each partition was read.

    The gap is in records and the lag in time, both as the projector saw them last; `frameledger doctor` looks for
    itself. Ends with exit code 1 if not everything runs.

    Example: `frameledger status --json`
    """
    from frameledger_services.embedded.record import read_record

    settings = settings_of(data_dir, look_for_running=False)
    directory = settings.data_dir.resolve()
    report = render.report(directory, read_record(directory), now=time.time())
    partitions = lag.reach(settings)
    if as_json:
        whole = report.model_dump(mode="json") | {"partitions": lag.as_json(partitions)}
        typer.echo(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        output.console().print(render.status_page(report))
        if partitions:
            output.console().print("", lag.table(partitions), sep="\n")
    if not report.running:
        raise typer.Exit(1)


def _require_key(provider: str, settings: Settings) -> None:
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        plugins.require_key(provider, settings)


def _services(settings: Settings) -> list[stack.Command]:
    from frameledger_services.embedded import stack

    first = METRICS_PORT if settings.metrics_port is None else settings.metrics_port
    words = SERVICES if settings.inference_provider is None else (*SERVICES, ANSWERING)
    services = [stack.Command(one[-1], one) for one in words]
    if extras.is_installed("gateway"):
        services.append(stack.Command(GATEWAY[-1], GATEWAY, preferred_port=GATEWAY_PORT))
    return [replace(one, metrics_port=first + place) for place, one in enumerate(services)]


def setup() -> list[stack.Command]:
    """What `up` runs once, in this order, when the servers are ready that it needs."""
    from frameledger_services.embedded import stack

    return [
        stack.Command("migrate", ("migrate",), before_kafka=True),
        stack.Command("topics", ("topics", "--create")),
    ]


def _run(settings: Settings) -> bool:
    """Run everything in this process until a signal comes; returns whether everything ran."""
    from frameledger_services import logs
    from frameledger_services.embedded.forked import forking

    services = _services(settings)
    with forking(imports.of(one.name for one in services)) as fork_server:
        logs.configure(settings.log_level, settings.log_format)
        return asyncio.run(_supervise(settings, services, fork_server))


async def _supervise(
    settings: Settings, services: Sequence[stack.Command], fork_server: ForkServer | None
) -> bool:
    from frameledger_services.embedded import stack

    asked = process.cancel_on_signals()
    with render.Progress(output.console(), settings.data_dir) as progress:
        try:
            await stack.up(
                settings,
                setup=setup(),
                services=services,
                on_change=progress.show,
                fork_server=fork_server,
            )
        except asyncio.CancelledError:
            if not asked:
                raise
    return progress.was_ready


def _stop_supervisor(directory: Path) -> None:
    """Ask the `up` that holds this directory to stop; kill it if it does not in time. It is gone on return."""
    from frameledger_services.embedded.program import EmbeddedError
    from frameledger_services.embedded.record import find_process, read_record

    record = read_record(directory)
    supervisor = find_process(record.pid, record.started) if record else None
    if record is None or supervisor is None:
        raise EmbeddedError(
            f"Somebody holds {directory}, and it is not known who.",
            "If that is an `up` that has just begun, try again.",
        )
    with output.console().status("Stopping ..."):
        supervisor.send_signal(signal.SIGTERM)
        supervisor.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + DOWN_WITHIN
        # Not until it lets go of the directory: it does so a moment before it is gone itself.
        while find_process(record.pid, record.started) is not None:
            if time.monotonic() > deadline:
                supervisor.kill()
            time.sleep(POLL)


def _start_detached(settings: Settings) -> bool:
    """Run everything in a process of its own, and show its progress until everything runs."""
    from frameledger_services.embedded.detached import detached
    from frameledger_services.embedded.program import EmbeddedError, failed
    from frameledger_services.embedded.record import Phase, read_record

    directory = settings.data_dir.resolve()
    log = directory / "logs" / "up.log"
    child = detached(["up", "--data-dir", str(directory)], log)
    shown = None
    with render.Progress(output.console(), settings.data_dir, detached=True) as progress:
        try:
            while not progress.was_ready:
                code = child.ended()
                record = read_record(directory)
                if record is not None and record.pid == child.pid and record != shown:
                    shown = record
                    progress.show(record)
                    if record.phase is Phase.FAILED:
                        raise EmbeddedError(record.problem, record.remedy)
                if code is not None and not progress.was_ready:
                    raise failed("up", f"ended with exit code {code}", log)
                time.sleep(POLL)
        except BaseException:
            child.stop(DOWN_WITHIN)
            raise
    return True


def settings_of(data_dir: Path | None, *, look_for_running: bool) -> Settings:
    """Returns the settings in force, with this data directory if one is given; exits on an error."""
    try:
        # The settings file is looked for in that directory, too.
        given = {} if data_dir is None else {f"{PREFIX}DATA_DIR": str(data_dir)}
        return load({**os.environ, **given}, look_for_running=look_for_running).settings
    except SettingsError as error:
        output.fail(str(error), "`frameledger config --help` says more.")

"""`frameledger up`, `down` and `status`: the embedded servers and the services together."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from frameledger_services import process
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.up import imports, lag, render, services
from frameledger_services.cli.up.report import report as report_of
from frameledger_services.cli.up.report import status_page
from frameledger_services.settings import PREFIX, Settings, SettingsError
from frameledger_services.settings_sources import SETTINGS_FILE, load

if TYPE_CHECKING:
    from frameledger_services.embedded import stack
    from frameledger_services.embedded.forked import ForkServer

# The embedded servers are imported inside the commands: they need Linux or macOS, and the command line runs anywhere.

NOBODY_ANSWERS = (
    "No inference service runs here: FRAMELEDGER_INFERENCE_PROVIDER (scripted, openai, anthropic) is set neither in "
    "the environment nor in {file}."
)

DOWN_WITHIN = 90.0
"""For all that stops, beside the service that takes longest."""

POLL = 0.05

commands = typer.Typer()

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Data directory. Default: FRAMELEDGER_DATA_DIR, else .frameledger."
    ),
]


@commands.command()
def up(
    data_dir: DataDir = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; return when everything is running.")
    ] = False,
) -> None:
    """Start Kafka, PostgreSQL and all services, and restart any that stops.

    The servers come from packages and store their data in one directory; the first start downloads the broker's jars.
    With FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS or FRAMELEDGER_DATABASE_URL it uses those servers instead. It runs an
    inference service if FRAMELEDGER_INFERENCE_PROVIDER is set. Ctrl-C stops everything and keeps the data. Put settings
    for every terminal into the file frameledger.env of the data directory, one line NAME=value each.

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
        output.fail("Stopped before everything was running.", "Start it again with: frameledger up")


@commands.command()
def down(data_dir: DataDir = None) -> None:
    """Stop everything that `up` started in this directory, including leftovers of a killed `up`.

    Exit code 0 if nothing is running afterwards, whether or not anything was running before.

    Example: `frameledger down`
    """
    from frameledger_services.embedded import stack
    from frameledger_services.embedded.directory import claimed, is_claimed
    from frameledger_services.embedded.leftovers import end_leftovers
    from frameledger_services.embedded.program import EmbeddedError

    settings = settings_of(data_dir, look_for_running=False)
    directory = settings.data_dir.resolve()
    if not directory.is_dir():
        typer.echo(f"Nothing is running: the folder {directory} does not exist.")
        return
    try:
        stopped = is_claimed(directory)
        if stopped:
            _stop_supervisor(directory, DOWN_WITHIN + stack.stop_secs(settings))
        with claimed(directory, least_space=0):
            left = end_leftovers(directory)
    except EmbeddedError as error:
        output.fail(error.problem, error.remedy)
    if left:
        typer.echo(f"Stopped leftovers of a killed `up`: {', '.join(left)}.")
    elif stopped:
        typer.echo(f"Stopped. The data is kept in {directory}.")
    else:
        typer.echo(f"Nothing is running in {directory}.")


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
    directory = settings.data_dir.resolve()
    report = report_of(directory, read_record(directory), now=time.time())
    partitions = lag.reach(settings)
    if as_json:
        whole = report.model_dump(mode="json") | {"partitions": lag.as_json(partitions)}
        typer.echo(json.dumps(whole, indent=2, ensure_ascii=False))
    else:
        output.print_whole(output.console(), status_page(report))
        if partitions:
            output.console().print("", lag.table(partitions), sep="\n")
    if not report.running:
        raise typer.Exit(1)


def _require_key(provider: str, settings: Settings) -> None:
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        plugins.require_key(provider, settings)


def _run(settings: Settings) -> bool:
    """Run everything in this process until a signal. Returns whether everything was running."""
    from frameledger_services import logs
    from frameledger_services.embedded.forked import forking

    wanted = services.configured(settings)
    with forking(imports.of(one.name for one in wanted)) as fork_server:
        logs.configure(settings.log_level, settings.log_format)
        return asyncio.run(_supervise(settings, wanted, fork_server))


async def _supervise(
    settings: Settings, wanted: Sequence[stack.Command], fork_server: ForkServer | None
) -> bool:
    from frameledger_services.embedded import stack

    asked = process.cancel_on_signals()
    with render.StartProgress(output.console(), settings.data_dir) as progress:
        try:
            await stack.up(
                settings,
                setup=services.setup(),
                services=wanted,
                on_change=progress.show,
                fork_server=fork_server,
            )
        except asyncio.CancelledError:
            if not asked:
                raise
    return progress.was_ready


def _stop_supervisor(directory: Path, within: float) -> None:
    """Stop the `up` that locks this directory, and kill it after so many seconds. The process has ended on return."""
    from frameledger_services.embedded.program import EmbeddedError
    from frameledger_services.embedded.record import find_process, read_record

    record = read_record(directory)
    supervisor = find_process(record.pid, record.started) if record else None
    if record is None or supervisor is None:
        raise EmbeddedError(
            f"Another process has locked {directory}, and its pid is unknown.",
            "If it is an `up` that was just started, try again.",
        )
    with output.console().status("Stopping ..."):
        supervisor.send_signal(signal.SIGTERM)
        supervisor.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + within
        # It releases the lock of the directory a moment before the process ends.
        while find_process(record.pid, record.started) is not None:
            if time.monotonic() > deadline:
                supervisor.kill()
            time.sleep(POLL)


def _start_detached(settings: Settings) -> bool:
    """Run everything in a separate process, and show its progress until everything is running."""
    from frameledger_services.embedded.detached import detached
    from frameledger_services.embedded.program import EmbeddedError, failed
    from frameledger_services.embedded.record import Phase, read_record

    directory = settings.data_dir.resolve()
    log = directory / "logs" / "up.log"
    child = detached(["up", "--data-dir", str(directory)], log)
    shown = None
    with render.StartProgress(output.console(), settings.data_dir, detached=True) as progress:
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
        except BaseException as error:
            from frameledger_services.embedded import stack

            progress.stopping()
            child.stop(DOWN_WITHIN + stack.stop_secs(settings))
            if isinstance(error, KeyboardInterrupt):
                return False
            raise
    return True


def settings_of(data_dir: Path | None, *, look_for_running: bool) -> Settings:
    """Returns the effective settings, with this data directory if one is given. Ends the command on an error."""
    try:
        # The settings file of that directory is read, too.
        given = {} if data_dir is None else {f"{PREFIX}DATA_DIR": str(data_dir)}
        return load({**os.environ, **given}, look_for_running=look_for_running).settings
    except SettingsError as error:
        output.fail(str(error), "See `frameledger config --help`.")

"""`frameledger up`: the embedded servers and the services together."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from frameledger_services import process
from frameledger_services.cli.terminal import backend, output
from frameledger_services.cli.up import imports, render, services
from frameledger_services.cli.up.data_dir import DataDir, settings_of
from frameledger_services.cli.up.down import DOWN_WITHIN
from frameledger_services.settings import Settings
from frameledger_services.settings_sources import SETTINGS_FILE

if TYPE_CHECKING:
    from frameledger_services.embedded import command_programs
    from frameledger_services.embedded.forked import ForkServer

# The embedded servers are imported inside the commands: they need Linux or macOS, and the command line runs anywhere.

NO_INFERENCE = (
    "No inference service runs here: FRAMELEDGER_INFERENCE_PROVIDER (scripted, openai, anthropic) is set neither in "
    "the environment nor in {file}."
)

POLL = 0.05

STOPPED = "Stopped before everything was running.", "Start it again with: frameledger up"

commands = typer.Typer()


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
        free(settings.directory)
        if settings.inference_provider is None:
            typer.echo(NO_INFERENCE.format(file=settings.data_dir / SETTINGS_FILE))
        ready = _start_detached(settings) if detach else _run(settings)
    except EmbeddedError as error:
        output.fail(error.problem, error.remedy)
    except KeyboardInterrupt:
        output.fail(*STOPPED, code=130)
    if not ready:
        output.fail(*STOPPED)


def _require_key(provider: str, settings: Settings) -> None:
    from frameledger_services.providers import plugins

    with backend.exit_on_error():
        plugins.require_key(provider, settings)


def _run(settings: Settings) -> bool:
    """Run everything in this process until a signal. Returns whether everything was running."""
    from frameledger_services import logs
    from frameledger_services.embedded.forked import forking

    commands = services.configured(settings)
    with forking(imports.of(one.name for one in commands)) as fork_server:
        logs.configure(settings.log_level, settings.log_format)
        return asyncio.run(_supervise(settings, commands, fork_server))


async def _supervise(
    settings: Settings, commands: Sequence[command_programs.Command], fork_server: ForkServer | None
) -> bool:
    from frameledger_services.embedded import stack

    signals = process.cancel_on_signals()
    with render.StartProgress(output.console(), settings.data_dir) as progress:
        try:
            await stack.up(
                settings,
                setup=services.setup(),
                services=commands,
                on_change=progress.show,
                fork_server=fork_server,
            )
        except asyncio.CancelledError:
            if not signals:
                raise
            if signal.SIGINT in signals and not progress.was_ready:
                raise KeyboardInterrupt from None
    return progress.was_ready


def _start_detached(settings: Settings) -> bool:
    """Run everything in a separate process, and show its progress until everything is running."""
    from frameledger_services.embedded.detached import detached
    from frameledger_services.embedded.program import EmbeddedError, failed, own_log
    from frameledger_services.embedded.record import Phase, read_record

    directory = settings.directory
    log = own_log(directory)
    # One that was killed may have had the pid that this one gets.
    shown = read_record(directory)
    child = detached(["up", "--data-dir", str(directory)], log)
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
        except BaseException:
            from frameledger_services.embedded import command_programs

            progress.stopping()
            child.stop(DOWN_WITHIN + command_programs.stop_secs(settings))
            raise
    return True

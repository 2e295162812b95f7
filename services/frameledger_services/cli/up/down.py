"""`frameledger down`: stop what `up` started in a directory."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

import typer

from frameledger_services.cli.terminal import output
from frameledger_services.cli.up.data_dir import DataDir, settings_of

# The embedded servers are imported inside the command: they need Linux or macOS, and the command line runs anywhere.

DOWN_WITHIN = 90.0
"""Seconds for everything to stop, in addition to those of the service that may take longest."""

POLL = 0.05

commands = typer.Typer()


@commands.command()
def down(data_dir: DataDir = None) -> None:
    """Stop everything that `up` started in this directory, including leftovers of a killed `up`.

    Exit code 0 if nothing is running afterwards, whether or not anything was running before.

    Example: `frameledger down`
    """
    from frameledger_services.embedded import command_programs
    from frameledger_services.embedded.directory import claimed, is_claimed
    from frameledger_services.embedded.leftovers import end_leftovers
    from frameledger_services.embedded.program import EmbeddedError

    settings = settings_of(data_dir, look_for_running=False)
    directory = settings.directory
    if not directory.is_dir():
        typer.echo(f"Nothing is running: the folder {directory} does not exist.")
        return
    try:
        stopped = is_claimed(directory)
        if stopped:
            _stop_supervisor(directory, DOWN_WITHIN + command_programs.stop_secs(settings))
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


def _stop_supervisor(directory: Path, within: float) -> None:
    """Stop the `up` that locks this directory, and kill it after this many seconds. The process has ended on return."""
    import psutil

    from frameledger_services.embedded.program import EmbeddedError
    from frameledger_services.embedded.record import find_process, read_record

    record = read_record(directory)
    supervisor = find_process(record) if record else None
    if record is None or supervisor is None:
        raise EmbeddedError(
            f"Another process has locked {directory}, and its pid is unknown.",
            "If it is an `up` that was just started, try again.",
        )
    # It may end by itself at any moment.
    with output.console().status("Stopping ..."), suppress(psutil.NoSuchProcess):
        supervisor.send_signal(signal.SIGTERM)
        supervisor.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + within
        # It releases the lock of the directory a moment before the process ends.
        while find_process(record) is not None:
            if time.monotonic() > deadline:
                supervisor.kill()
            time.sleep(POLL)

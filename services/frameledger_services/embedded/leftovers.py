"""What a killed supervisor left: found by the record, asked to stop, and ended if it does not."""

import signal
from pathlib import Path

import psutil

from frameledger_services.embedded import postgres_remains
from frameledger_services.embedded.record import Process, find_process, read_record, remove_record, working_in
from frameledger_services.settings_sources import running_file

STOP_WITHIN = 15.0


def end_leftovers(directory: Path) -> list[str]:
    """End every process that the record of this directory names and that still lives; returns their names.

    Only for whoever holds the directory's claim: what a living supervisor runs are no leftovers. Blocks, for
    `STOP_WITHIN` seconds a program at most. Called twice it finds nothing the second time.
    """
    record = read_record(directory)
    recorded = record.processes if record else ()
    ended = []
    # Servers last: the services' last words are for them. The record has them in the order of their start.
    for process in reversed(recorded):
        if find_living(process):
            ended.append(process.name)
            _stop(process)
        if process.name == "postgres" and process.own_directory is not None:
            postgres_remains.sweep(process.own_directory)
    for socket in (directory / "run").glob(".s.PGSQL.*"):
        socket.unlink(missing_ok=True)
    running_file(directory).unlink(missing_ok=True)
    remove_record(directory)
    return ended


def find_living(recorded: Process) -> list[psutil.Process]:
    """The recorded process, if it lives, and whatever else works in the directory that is its own."""
    itself = find_process(recorded.pid, recorded.started)
    living = [itself] if itself is not None else []
    if recorded.own_directory is not None:
        there = working_in(recorded.own_directory, recorded.executable)
        living += [process for process in there if process not in living]
    return living


def _stop(recorded: Process) -> None:
    itself = find_process(recorded.pid, recorded.started)
    if itself is not None:
        # To PostgreSQL a SIGTERM means to wait until the last client has gone.
        _signal(itself, signal.SIGINT if recorded.name == "postgres" else signal.SIGTERM)
        # One that was frozen would not hear it.
        _signal(itself, signal.SIGCONT)
        psutil.wait_procs([itself], timeout=STOP_WITHIN)
    # Children without their server have nothing left to say.
    orphans = find_living(recorded)
    for orphan in orphans:
        _signal(orphan, signal.SIGKILL)
    psutil.wait_procs(orphans, timeout=STOP_WITHIN)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return

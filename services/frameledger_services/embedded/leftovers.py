"""Processes that a killed supervisor left running: found by the record, stopped, and killed after a timeout."""

import signal
from pathlib import Path

import psutil

from frameledger_services.embedded import postgres_remains
from frameledger_services.embedded.record import Process, find_process, read_record, remove_record, working_in
from frameledger_services.settings_sources import running_file

STOP_WITHIN = 15.0


def end_leftovers(directory: Path) -> list[str]:
    """Stop every process in the record of this directory that is still running. Returns their names.

    The caller must hold the directory's lock: processes of a running supervisor are not leftovers. Blocks up to
    `STOP_WITHIN` seconds for each program. Idempotent.
    """
    record = read_record(directory)
    recorded = record.processes if record else ()
    ended = []
    # Servers last, because services use them until they stop. The record has them in start order.
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
    """Returns the recorded process if it is running, and the other processes in the directory that it owns."""
    itself = find_process(recorded)
    living = [itself] if itself is not None else []
    if recorded.own_directory is not None:
        processes = working_in(recorded.own_directory, recorded.executable)
        living += [process for process in processes if process not in living]
    return living


def _stop(recorded: Process) -> None:
    itself = find_process(recorded)
    if itself is not None:
        # On SIGTERM, PostgreSQL waits until the last client disconnects.
        _signal(itself, signal.SIGINT if recorded.name == "postgres" else signal.SIGTERM)
        # A stopped process would not handle the signal.
        _signal(itself, signal.SIGCONT)
        psutil.wait_procs([itself], timeout=STOP_WITHIN)
    # Children without their server can be killed.
    orphans = find_living(recorded)
    for orphan in orphans:
        _signal(orphan, signal.SIGKILL)
    psutil.wait_procs(orphans, timeout=STOP_WITHIN)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return

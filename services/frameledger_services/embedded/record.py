"""The record of the processes of a data directory: the supervisor writes it at every change, other commands read it.

It has the pid and the birth of every process, so that the processes that a killed supervisor left can be found.
"""

import time
from enum import StrEnum
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from frameledger_services import data_directory

# Start times are computed from the machine's clock, which may be adjusted in between.
SAME_START = 2.0

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
START_FIELD = 19
"""Index of the start time, in ticks since the machine was booted, after the name in `/proc/PID/stat`."""


class State(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    DONE = "done"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DEAD = "dead"
    """Recorded as running, but not running, and neither is its supervisor."""

    EXTERNAL = "external"
    """An external server, given by a setting."""


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


class Process(BaseModel):
    """The current state of a supervised program."""

    model_config = ConfigDict(frozen=True)

    name: str
    state: State = State.WAITING
    pid: int | None = None
    started: float | None = None
    """Unix time in seconds at which the process with that pid started."""

    born: str = ""
    """See `birth_of`."""

    address: str | None = None
    metrics: str | None = None
    """URL of its metrics."""

    restarts: int = 0
    word: str = ""
    """A remark to display."""

    own_directory: Path | None = None
    executable: str = ""
    """If set, every process that runs a program of this name in that working directory belongs to this one."""


class Record(BaseModel):
    """The last state of the supervisor of a data directory and of its programs."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: float
    born: str = ""
    phase: Phase
    problem: str = ""
    remedy: str = ""
    processes: tuple[Process, ...] = ()


def write_record(directory: Path, record: Record) -> None:
    """Replace the record atomically."""
    path = _record_file(directory)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(record.model_dump_json(indent=1), encoding="utf-8")
    unfinished.replace(path)


def read_record(directory: Path) -> Record | None:
    """Returns the record, or None if there is none or it cannot be read."""
    try:
        return Record.model_validate_json(_record_file(directory).read_bytes())
    except (OSError, ValidationError):
        return None


def record_of_running(directory: Path) -> Record | None:
    """Returns the record of the `up` that runs in this directory; None if none does. The record of one that was killed
    names ports that may be those of another `up` by now."""
    return read_record(directory) if data_directory.is_running(directory) else None


def remove_record(directory: Path) -> None:
    _record_file(directory).unlink(missing_ok=True)


def find_process(recorded: Process | Record) -> psutil.Process | None:
    """Returns the recorded process if it is running; another one with its pid does not count."""
    if recorded.pid is None or recorded.started is None:
        return None
    try:
        process = psutil.Process(recorded.pid)
        born = birth_of(recorded.pid)
        if recorded.born and born:
            same = recorded.born == born
        else:
            same = abs(process.create_time() - recorded.started) < SAME_START
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def birth_of(pid: int) -> str:
    """Returns what distinguishes a process from all others that had or get its pid, even after the clock was set: the
    id of the machine's boot, and the ticks from there to the start of the process. Empty if the process has ended, or
    the kernel does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        return f"{BOOT_ID.read_text(encoding='ascii').strip()} {fields.split()[START_FIELD]}"
    except (OSError, IndexError):
        return ""


def working_in(directory: Path, executable: str) -> list[psutil.Process]:
    """Returns the processes that run a program of this name in this working directory."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory) and Path(process.exe()).name == executable:
                processes.append(process)
        except psutil.Error:
            # The process ended, or belongs to another user.
            continue
    return processes


def start_time(pid: int) -> float:
    """Returns the start of the process with that pid as Unix time, or the current time if it has ended."""
    try:
        began: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        began = time.time()
    return began


def _record_file(directory: Path) -> Path:
    return directory / "run" / "processes.json"

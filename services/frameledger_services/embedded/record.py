"""What runs in a data directory, written down: by the supervisor at every change, read by everybody else.

The record says who was started, with pid and start time, so that whoever comes after a killed supervisor finds
what it left.
"""

import time
from enum import StrEnum
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

# Start times are computed from the machine's clock, which may be set a little between two looks at it.
SAME_START = 2.0


class State(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    DONE = "done"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DEAD = "dead"
    """Recorded as alive, and it is not: its supervisor is dead too."""

    EXTERNAL = "external"
    """Not ours: an address that a setting gave."""


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


class Process(BaseModel):
    """One supervised program, as it is now."""

    model_config = ConfigDict(frozen=True)

    name: str
    state: State = State.WAITING
    pid: int | None = None
    started: float | None = None
    """Unix time in seconds at which the process with that pid began."""

    address: str | None = None
    metrics: str | None = None
    """Where what it counts can be read."""

    restarts: int = 0
    word: str = ""
    """What a person should know about it now."""

    own_directory: Path | None = None
    executable: str = ""
    """If set: whatever runs a program of that name with that working directory belongs to this one."""


class Record(BaseModel):
    """What the supervisor of a data directory last wrote about itself and its programs."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: float
    phase: Phase
    problem: str = ""
    remedy: str = ""
    processes: tuple[Process, ...] = ()


def write_record(directory: Path, record: Record) -> None:
    """Replace the record: a reader sees the old one or the new one, never a half."""
    path = _record_file(directory)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(record.model_dump_json(indent=1), encoding="utf-8")
    unfinished.replace(path)


def read_record(directory: Path) -> Record | None:
    """The last record; None if there is none that can be read."""
    try:
        return Record.model_validate_json(_record_file(directory).read_bytes())
    except (OSError, ValidationError):
        return None


def remove_record(directory: Path) -> None:
    _record_file(directory).unlink(missing_ok=True)


def find_process(pid: int | None, started: float | None) -> psutil.Process | None:
    """The process of that pid if it lives and is the same one, not another that got its number later."""
    if pid is None or started is None:
        return None
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - started) < SAME_START
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def working_in(directory: Path, executable: str) -> list[psutil.Process]:
    """The processes that run a program of this name with this working directory."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory) and Path(process.exe()).name == executable:
                found.append(process)
        except psutil.Error:
            # It ended meanwhile, or belongs to another user.
            continue
    return found


def start_time(pid: int) -> float:
    """When the process of that pid began, as Unix time; now, if it has ended already."""
    try:
        began: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        began = time.time()
    return began


def _record_file(directory: Path) -> Path:
    return directory / "run" / "processes.json"

"""A program that we run: its command line, its readiness check, and how it is stopped."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from frameledger.errors import ConfigurationError

LAUNCHER = Path(__file__).with_name("launch.py")
LARGEST_LOG = 16 * 1024 * 1024
"""Bytes of a log beyond which it is rotated: when its program starts, and while it runs."""

LONGEST_LINE = 300
LOOKED_AT = 16_384
"""Bytes at the end of a log in which the cause of an error is searched."""

SHOWN_LINES = 8
"""Lines at the end of a log that the error for a failed program quotes."""

NO_ROOM = "a fault occurred in an unsafe memory access operation"
"""Java's words for a page of a mapped file that the disk has no room for. A broker whose disk is full ends with them
when it starts again, because it maps its indexes."""

FATAL = re.compile(rf"\bPANIC\b|\bFATAL\b(?!:\s+the database system is )|No space left on device|{NO_ROOM}")
"""Fatal errors in the logs of PostgreSQL and Kafka; other lines may follow them. Excluded are the FATAL lines for
clients that connect while the database starts or stops."""

_STACK = re.compile(r"at |\.\.\. \d+ more$")
"""Lines of a Java exception that say where it was raised."""

# Messages of servers about problems of the machine, with their remedies.
REMEDIES = {
    "No space left on device": "The disk is full: free disk space, or use another data directory (--data-dir).",
    "Address already in use": "Another program took its port: start again to use a free one.",
    "Permission denied": "Use a data directory with write permission (--data-dir).",
    "error while loading shared libraries": "Install that library, or set the address of another server.",
}


class EmbeddedError(ConfigurationError):
    """An embedded server cannot be started, or stopped unexpectedly.

    Remedy: Follow the error's own `remedy`; a retry without it fails again.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Program:
    """The description of a process that runs until it is stopped. Creating a `Program` starts nothing."""

    name: str
    """Unique name among the programs of a data directory; also the name of the log file."""

    argv: tuple[str, ...]
    directory: Path
    """The working directory. It exists."""

    log: Path
    """Output and errors are appended here. Its folder exists."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to our own environment."""

    address: str | None = None
    """Its address, for display."""

    metrics: str | None = None
    """URL of its metrics."""

    note: str = ""
    """A remark to display while it runs; usually empty."""

    is_ready: Callable[[], bool] = lambda: True
    """Returns whether it is ready. Blocks for up to two seconds. Does not raise if it is not ready."""

    is_back: Callable[[], bool] | None = None
    """Replaces `is_ready` after a restart, when its dependencies may be unavailable."""

    may_be_forked: bool = False
    """Whether `argv` is one of our commands, `PYTHON -m frameledger_services WORDS`, which the fork server can run."""

    stop_signal: signal.Signals = signal.SIGTERM
    ready_within: float = 60.0
    """Seconds within which it has to be ready, or to end if it is run once."""

    stop_within: float = 20.0
    """Seconds after which a program that has not stopped is killed."""

    sweep: Callable[[], None] = lambda: None
    """Removes what a killed process left behind. Called before each start and after each end."""

    owns_directory: bool = False
    """Whether only this program and its children use `directory`, so that every process there can be stopped with
    it."""

    opens_by_path: bool = False
    """Whether it opens files of `directory` by their whole path again and again: once the directory was deleted or
    moved, it would write into what is at its path by then."""

    launch_options: tuple[str, ...] = ()
    """Options for `launch.py`: `--user-namespace`, `--as-user=NAME`, `--nice=N`."""

    def command(self) -> list[str]:
        """Returns the command line to execute: `argv`, through the launcher."""
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), f"--die-with={os.getpid()}"]
        return [*launcher, f"--signal={int(self.stop_signal)}", *self.launch_options, "--", *self.argv]


def open_log(path: Path) -> BinaryIO:
    """Open a program's log for appending. A large log is rotated first; one rotated file is kept."""
    if is_large(path):
        path.replace(rotated(path))
    return path.open("ab")


def empty_large_log(path: Path) -> bool:
    """Rotate the log of a running program if it is large, and return whether it was.

    The program has the file open, so it is copied and emptied in place. The program appends (O_APPEND): it goes on at
    the new end. What it writes between the last byte that was copied and the emptying is lost, some microseconds.
    Raises `OSError`, and leaves the log as it is then.
    """
    if not is_large(path):
        return False
    # Removed first: a disk that is nearly full has no room for three.
    rotated(path).unlink(missing_ok=True)
    shutil.copyfile(path, rotated(path))
    os.truncate(path, 0)
    return True


def is_large(path: Path) -> bool:
    """Returns whether the log is to be rotated."""
    return path.exists() and path.stat().st_size > LARGEST_LOG


def own_log(directory: Path) -> Path:
    """Returns the log of an `up` in the background."""
    return directory / "logs" / "up.log"


def rotated(path: Path) -> Path:
    """Returns the path of the rotated file of this log."""
    return path.with_name(f"{path.name}.1")


def failed(name: str, what: str, log: Path, since: int = 0) -> EmbeddedError:
    """Returns the error for a program that failed, with the end of its log, and a remedy if that has a known error.
    Only the log from the byte `since` on counts, because the rest belongs to earlier processes."""
    output = last_lines(log, since)
    known = (remedy for words, remedy in REMEDIES.items() if words in output)
    remedy = next(known, f"Its full output is in {log}.")
    return EmbeddedError(f"{name} {what}:\n{output}\n" if output else f"{name} {what}.", remedy)


def cause(log: Path, since: int = 0) -> str:
    """Returns why a program ended: the last fatal line of its log, else the last line that says more than where an
    exception was raised. Only the log from the byte `since` on is searched, because the rest belongs to earlier
    processes."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, log.stat().st_size - LOOKED_AT))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    output = [
        line.strip()[:LONGEST_LINE] for line in lines if line.strip() and not _STACK.match(line.strip())
    ]
    line = next((line for line in reversed(output) if FATAL.search(line)), output[-1] if output else "")
    return f"The disk is probably full: {line}" if NO_ROOM in line else line


def last_lines(log: Path, since: int = 0) -> str:
    """Returns the end of a log file, from the byte `since` on, for an error message; empty if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, log.stat().st_size - LOOKED_AT))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(f"  {line[:LONGEST_LINE]}" for line in lines[-SHOWN_LINES:] if line.strip())

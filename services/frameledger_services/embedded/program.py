"""A program that we start: its command line, how one can tell that it is ready, how it is stopped."""

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from frameledger.errors import ConfigurationError

LAUNCHER = Path(__file__).with_name("launch.py")
LARGEST_LOG = 16 * 1024 * 1024
LONGEST_LINE = 300
LOOKED_AT = 16_384
"""Bytes at the end of a log in which its last words are looked for."""

FATAL = re.compile(r"\bPANIC\b|\bFATAL\b(?!:\s+the database system is )|No space left on device")
"""What PostgreSQL and Kafka say of what they do not survive; other lines may follow it. A client that comes while the
database starts or ends is told that with FATAL, too."""

# What servers say when the machine is the reason, and what helps.
REMEDIES = {
    "No space left on device": "The disk is full: make room on it, or use another data directory (--data-dir).",
    "Address already in use": "Another program took its port meanwhile: start again, and a free one is taken.",
    "Permission denied": "Use a data directory that you may write to (--data-dir).",
    "error while loading shared libraries": "Install that library, or use a server of your own by its address.",
}


class EmbeddedError(ConfigurationError):
    """The machine does not let an embedded server start, or what was started does not run.

    Remedy: The error's own `remedy` says what a person can do; trying again without it changes nothing.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Program:
    """One process that runs until it is stopped. Making a `Program` starts nothing."""

    name: str
    """Unique among the programs of a data directory; the log file is named after it."""

    argv: tuple[str, ...]
    directory: Path
    """The working directory. It exists."""

    log: Path
    """Output and errors are appended here. Its folder exists."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Set in addition to our own environment."""

    address: str | None = None
    """Where it listens, for people."""

    metrics: str | None = None
    """Where what it counts can be read."""

    note: str = ""
    """What a person should know about it while it runs; usually nothing."""

    is_ready: Callable[[], bool] = lambda: True
    """One attempt to use it. May block for at most two seconds; never raises because it is not ready yet."""

    is_back: Callable[[], bool] | None = None
    """Instead of `is_ready` when it is started again: what it needs may be away then, and that is no reason to end
    it."""

    may_be_forked: bool = False
    """Whether `argv` is a command of ours, `PYTHON -m frameledger_services WORDS`: then it may run in a process that
    was forked from one which has imported it."""

    stop_signal: signal.Signals = signal.SIGTERM
    ready_within: float = 60.0
    stop_within: float = 20.0
    """In seconds. What has not stopped by then is killed."""

    sweep: Callable[[], None] = lambda: None
    """Removes what an earlier life of it left when it was killed. Called before each start and after each end."""

    owns_directory: bool = False
    """Whether only this program and its children work in `directory`: every process there can be ended with it."""

    launch_options: tuple[str, ...] = ()
    """For `launch.py`: `--user-namespace`, `--as-user NAME`, `--nice N`."""

    def command(self) -> list[str]:
        """The command line that really runs: `argv`, through the launcher."""
        launcher = [sys.executable, "-I", "-S", str(LAUNCHER), f"--die-with={os.getpid()}"]
        return [*launcher, f"--signal={int(self.stop_signal)}", *self.launch_options, "--", *self.argv]


def open_log(path: Path) -> BinaryIO:
    """A program's log, to append to. One that has grown is kept aside first, and the one aside of that deleted."""
    if path.exists() and path.stat().st_size > LARGEST_LOG:
        path.replace(path.with_name(f"{path.name}.1"))
    return path.open("ab")


def failed(name: str, what: str, log: Path) -> EmbeddedError:
    """The error for a program that did not do what it should: with its last words, and a remedy if they tell one."""
    said = last_lines(log)
    known = (remedy for words, remedy in REMEDIES.items() if words in said)
    remedy = next(known, f"All it said is in {log}.")
    return EmbeddedError(f"{name} {what}:\n{said}\n" if said else f"{name} {what}.", remedy)


def cause(log: Path, since: int = 0) -> str:
    """Why a program ended, in its own words: the last line of its log that says so, or else the last line. Lines before
    the byte `since` are of earlier lives."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, log.stat().st_size - LOOKED_AT))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip()[:LONGEST_LINE] for line in lines if line.strip()]
    return next((line for line in reversed(said) if FATAL.search(line)), said[-1] if said else "")


def last_lines(log: Path, count: int = 8) -> str:
    """The end of a log file, for an error message; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOOKED_AT))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    return "\n".join(f"  {line[:LONGEST_LINE]}" for line in lines[-count:] if line.strip())

"""The lock of a data directory: one `up` at a time.

It is a kernel lock, which is released when the process ends, however it ends.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from frameledger_services import data_directory
from frameledger_services.data_directory import MIN_SPACE
from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.record import read_record

TRIES, RETRY_SECONDS = 20, 0.01
"""The number and interval of attempts to get a lock that is held: a process that only checks whether an `up` runs
(`is_claimed`, `data_directory.is_running`) holds it for a moment."""


def make(directory: Path) -> None:
    """Create the directory and its folders unless they exist.

    The folders are accessible only to their owner, because they contain conversations. The directory itself can be
    traversed but not listed, because PostgreSQL may run as another user (`postgres_user`).
    """
    if not directory.exists():
        directory.mkdir(mode=0o711, parents=True)
        # Nothing in the directory belongs in a repository.
        (directory / ".gitignore").write_text("*\n", encoding="ascii")
    for folder in ("run", "logs"):
        (directory / folder).mkdir(mode=0o700, exist_ok=True)


@dataclass(frozen=True, slots=True)
class Claim:
    """A data directory that this process has locked."""

    directory: Path
    lock: int
    """The open lock file."""

    def is_held(self) -> bool:
        """Returns whether the directory is still the one that was locked. After it was deleted or moved, its path does
        not exist, or belongs to another `up` with its own lock."""
        try:
            return os.path.samestat(os.fstat(self.lock), _lock_file(self.directory).stat())
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # A temporary error of the disk does not mean that the directory is gone.
            return True

    def require(self) -> None:
        """Raise `EmbeddedError` unless it is held."""
        if not self.is_held():
            raise self.lost()

    def lost(self) -> EmbeddedError:
        """Returns the error for a directory that is not held any more."""
        return EmbeddedError(
            f"The data directory {self.directory} was deleted or moved while `frameledger up` ran in it: everything is "
            "stopped.",
            "Start it again with `frameledger up`; if the directory was moved, with --data-dir.",
        )


@contextmanager
def claimed(directory: Path, *, least_space: int = MIN_SPACE) -> Iterator[Claim]:
    """Create the directory if it does not exist, and lock it against every other `up` during the block.

    Raises `EmbeddedError` if another `up` runs in it, if it cannot be written, if its path is not UTF-8, or if its disk
    is full.
    """
    _require_utf8(directory)
    try:
        make(directory)
        lock = os.open(_lock_file(directory), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise EmbeddedError(
            f"{error.filename or directory} cannot be created: {error.strerror}.",
            "Use a data directory with write permission (--data-dir or FRAMELEDGER_DATA_DIR).",
        ) from error
    try:
        if not _take(lock):
            record = read_record(directory)
            holder = f" (process {record.pid})" if record else ""
            raise EmbeddedError(
                f"`frameledger up` is already running in {directory}{holder}.",
                "See `frameledger status`; stop it with `frameledger down`. A second one needs another --data-dir.",
            )
        require_space(directory, least_space)
        yield Claim(directory, lock)
    finally:
        os.close(lock)


def _take(lock: int) -> bool:
    """Returns whether this process has the lock now."""
    for look in range(TRIES):
        if look:
            time.sleep(RETRY_SECONDS)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def free(directory: Path) -> None:
    """Raise `EmbeddedError` if `claimed` would, before anything is started."""
    with claimed(directory):
        pass


def is_claimed(directory: Path) -> bool:
    """Returns whether an `up` is running in this directory. Raises `EmbeddedError` if it belongs to another user."""
    try:
        return data_directory.is_locked(directory)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise EmbeddedError(
            f"{directory} belongs to another user.", "Run the command as that user or as root."
        ) from error


def working_directory(otherwise: Path) -> Path:
    """Returns the working directory of this process, or `otherwise` if it was deleted: nothing can be started there."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return otherwise


def _require_utf8(directory: Path) -> None:
    # The record is JSON, and Java has no other names of files.
    try:
        os.fsencode(directory).decode("utf-8")
    except UnicodeDecodeError:
        raise EmbeddedError(
            f"The path of the data directory {directory} is not UTF-8.",
            "Use another data directory (--data-dir or FRAMELEDGER_DATA_DIR), or rename the folder.",
        ) from None


def require_space(directory: Path, least: int) -> None:
    """Raise `EmbeddedError` if the disk of this directory has fewer than `least` free bytes for this user."""
    free = shutil.disk_usage(directory).free
    if free < least:
        raise EmbeddedError(
            f"Only {free // 2**20} MB are free on the disk of {directory}; {least // 2**20} MB are needed.",
            "Free disk space, or use a data directory on another disk (--data-dir).",
        )


def _lock_file(directory: Path) -> Path:
    return directory / data_directory.RUN / data_directory.LOCK

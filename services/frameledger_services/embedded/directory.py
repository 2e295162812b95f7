"""A data directory belongs to one `up` at a time.

The claim is a lock of the kernel's: no process that was killed can leave it behind.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.record import read_record

LEAST_SPACE = 256 * 1024 * 1024


def make(directory: Path) -> None:
    """Make the directory and the folders that everything in it uses. Nothing happens if they are there.

    Conversations are nobody else's to read: folders are closed. The directory itself only cannot be listed,
    since PostgreSQL may have to come through it as another user (`postgres_user`).
    """
    if not directory.exists():
        directory.mkdir(mode=0o711, parents=True)
        # Nothing in here is source code.
        (directory / ".gitignore").write_text("*\n", encoding="ascii")
    for folder in ("run", "logs"):
        (directory / folder).mkdir(mode=0o700, exist_ok=True)


@contextmanager
def claimed(directory: Path, *, least_space: int = LEAST_SPACE) -> Iterator[None]:
    """Make the directory if need be and keep every other `up` away from it for as long as the block lasts.

    Raises `EmbeddedError` if another one runs in it, if it cannot be written, or if its disk is full.
    """
    try:
        make(directory)
        lock = os.open(directory / "run" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise EmbeddedError(
            f"{error.filename or directory} cannot be made: {error.strerror}.",
            "Use a data directory that you may write to (--data-dir or FRAMELEDGER_DATA_DIR).",
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            record = read_record(directory)
            who = f" (process {record.pid})" if record else ""
            raise EmbeddedError(
                f"`frameledger up` already runs in {directory}{who}.",
                "`frameledger status` shows it, `frameledger down` stops it; another one needs another --data-dir.",
            ) from None
        require_space(directory, least_space)
        yield
    finally:
        os.close(lock)


def free(directory: Path) -> None:
    """Raise `EmbeddedError` as `claimed` does, before anything is begun that would have to be taken back."""
    with claimed(directory):
        pass


def is_claimed(directory: Path) -> bool:
    """Whether an `up` runs in this directory now. Raises `EmbeddedError` if it belongs to another user."""
    try:
        lock = os.open(directory / "run" / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError as error:
        raise EmbeddedError(
            f"{directory} belongs to another user.", "That user, or root, has to ask for it."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def require_space(directory: Path, least: int) -> None:
    """Raises `EmbeddedError` if the disk of this directory has fewer than `least` bytes left for us."""
    free = shutil.disk_usage(directory).free
    if free < least:
        raise EmbeddedError(
            f"Only {free // 2**20} MB are free on the disk of {directory}; {least // 2**20} MB are needed.",
            "Make room there, or use a data directory on another disk (--data-dir).",
        )

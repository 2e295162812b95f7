"""The default data directory, and the data directories in which this user runs a `frameledger up`."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path

NAME = ".frameledger"
"""Name of the data directory in a folder."""

RUN = "run"
"""Folder in every data directory for the files of a running `up`."""

LOCK = "lock"
"""File in that folder which a running `up` locks. The kernel releases the lock when the process ends."""

MIN_SPACE = 256 * 1024 * 1024
"""Minimum free bytes for `up` to start, and for `doctor` to pass."""


def nearest(folder: Path) -> Path | None:
    """Returns the data directory of this folder or of the nearest folder above it, like git; None if there is none.

    Only a directory that belongs to this user is used, because its owner decides where conversations are stored.
    """
    for candidate in (folder, *folder.parents):
        with suppress(OSError):
            if (candidate / NAME / RUN).is_dir() and (candidate / NAME).stat().st_uid == os.getuid():
                return candidate / NAME
    return None


def remember(directory: Path) -> None:
    """Record for `running` that an `up` runs in this directory. Errors are ignored."""
    with suppress(OSError):
        note = _note(directory)
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(str(directory), encoding="utf-8")


def forget(directory: Path) -> None:
    """Remove that record. Safe to call twice."""
    with suppress(OSError):
        _note(directory).unlink(missing_ok=True)


def running() -> list[Path]:
    """Returns the data directories in which an `up` of this user is running, and removes the records of killed ones."""
    directories = []
    with suppress(OSError):
        for note in sorted(_notes().iterdir()):
            with suppress(FileNotFoundError):
                text = note.read_text(encoding="utf-8")
                if is_running(Path(text)):
                    directories.append(Path(text))
                elif text:
                    note.unlink()
    return directories


def is_running(directory: Path) -> bool:
    """Returns whether an `up` runs in this data directory. Files that a killed `up` left there do not count."""
    try:
        return is_locked(directory)
    except OSError:
        return False


def is_locked(directory: Path) -> bool:
    """Returns whether an `up` has the lock of this data directory. Raises OSError if the lock cannot be opened."""
    file = os.open(directory / RUN / LOCK, os.O_RDONLY)
    try:
        # Shared, so that two processes that check at once do not take each other for an `up`.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _notes() -> Path:
    """Returns the folder of the records. Raises FileNotFoundError for a user without a home directory, such as a number
    in a container that has no entry."""
    state = os.environ.get("XDG_STATE_HOME", "").strip() or "~/.local/state"
    try:
        return Path(state).expanduser() / "frameledger" / "running"
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error


def _note(directory: Path) -> Path:
    return _notes() / hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]

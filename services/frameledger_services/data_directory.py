"""Which data directory is meant where nobody says it, and in which ones of this user a `frameledger up` runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path

NAME = ".frameledger"
"""The data directory of a folder."""

RUN = "run"
"""What every data directory has in it: a folder for what is there while an `up` runs."""

LOCK = "lock"
"""In that folder. Held by the `up` that runs; no process that was killed can leave it held."""


def nearest(folder: Path) -> Path | None:
    """The data directory of this folder, else of the nearest one above it, as git finds its own; None for none.

    Only one that belongs to this user counts: whoever owns it says where our conversations go.
    """
    for one in (folder, *folder.parents):
        with suppress(OSError):
            if (one / NAME / RUN).is_dir() and (one / NAME).stat().st_uid == os.getuid():
                return one / NAME
    return None


def remember(directory: Path) -> None:
    """Note that an `up` runs in this directory, for `running`. What cannot be noted is not."""
    with suppress(OSError):
        note = _note(directory)
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(str(directory), encoding="utf-8")


def forget(directory: Path) -> None:
    """It runs no more. Safe to call twice."""
    with suppress(OSError):
        _note(directory).unlink(missing_ok=True)


def running() -> list[Path]:
    """The data directories in which an `up` of this user runs now. The notes of one that was killed are thrown away."""
    found = []
    with suppress(OSError):
        for note in sorted(_notes().iterdir()):
            directory = Path(note.read_text(encoding="utf-8"))
            if _is_held(directory / RUN / LOCK):
                found.append(directory)
            else:
                note.unlink(missing_ok=True)
    return found


def _is_held(lock: Path) -> bool:
    try:
        file = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _notes() -> Path:
    state = os.environ.get("XDG_STATE_HOME", "").strip() or "~/.local/state"
    return Path(state).expanduser() / "frameledger" / "running"


def _note(directory: Path) -> Path:
    return _notes() / hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]

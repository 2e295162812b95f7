"""Files that get their name only when they are complete.

A process holds the lock of its unfinished file. So what a killed process left can be told from what another one is
writing, and the next one that writes the same file deletes it.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO


def create(target: Path, ending: str) -> tuple[Path, BinaryIO]:
    """Create an unfinished file for this target, beside it, and delete those that killed processes left. Returns its
    path, and the open file, which holds its lock until it is closed. Raises OSError."""
    while True:
        # Not the name that another process uses, which writes the same target at the same time.
        path = target.with_name(f"{target.name}.{token_hex(4)}.{ending}")
        file = path.open("wb")
        # Some file systems have no locks. There, nothing is deleted either.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        # Before it was locked, another process may have deleted it.
        if _is_at(path, file):
            break
        file.close()
    _delete_remains(target, ending)
    return path, file


def _delete_remains(target: Path, ending: str) -> None:
    name = re.compile(rf"{re.escape(target.name)}\.[0-9a-f]{{8}}\.{ending}")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _delete_unlocked(Path(entry.path))


def _delete_unlocked(path: Path) -> None:
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False

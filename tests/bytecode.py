"""Lets Python write bytecode, also where the environment disables it, as in some containers. Otherwise each of the
thousand processes of a run would compile every module of ours that it imports, and each process of xdist every test:
most commands would take twice as long.
"""

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.bounds import PROGRAM
from tests.support.polling import pause

VARIABLE = "PYTHONDONTWRITEBYTECODE"


def keep() -> None:
    """Let this process and those that it starts write bytecode from now on."""
    os.environ.pop(VARIABLE, None)
    sys.dont_write_bytecode = False


@contextmanager
def compiled_by_one(environment: Path = Path(sys.prefix), within: float = PROGRAM) -> Iterator[None]:
    """Import tests in this block: the first process of an environment compiles them, while the others wait and then
    continue together. In a new checkout each of them would compile everything. If the first process dies, the kernel
    releases its lock, and the others compile for themselves. So do all processes where the file system has no locks,
    and a process that has waited `within` seconds for a frozen one.
    """
    place = os.open(environment, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _share(place, time.monotonic() + within)
        yield
    finally:
        os.close(place)


def _share(place: int, end: float) -> None:
    """Wait until no process holds the lock, or until this time of the monotonic clock."""
    while time.monotonic() < end:
        try:
            fcntl.flock(place, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pause()
        else:
            return

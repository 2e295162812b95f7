"""What Python compiles is kept, also where it is told not to: some containers are.

Without it each process of a run compiles every module of ours that it imports, and a worker of xdist every test: most
commands take twice the time, and a whole run starts a thousand processes.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "PYTHONDONTWRITEBYTECODE"


def keep() -> None:
    """Let this process and those that it starts write bytecode from now on."""
    os.environ.pop(VARIABLE, None)
    sys.dont_write_bytecode = False


@contextmanager
def compiled_by_one(environment: Path = Path(sys.prefix)) -> Iterator[None]:
    """Import tests in this block: the first process of an environment goes ahead, and those that come meanwhile wait
    until it has compiled them, and go on together. In a new checkout each of them would compile all of it.

    The kernel frees the lock of a process that dies; those that waited compile for themselves then. So does everybody
    where the file system has no locks.
    """
    place = os.open(environment, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(place, fcntl.LOCK_SH)
        yield
    finally:
        os.close(place)

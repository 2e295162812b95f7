"""Removal of what a killed PostgreSQL leaves behind.

Its child processes notice its end, but not during a computation. A small segment of shared memory stays until the
machine restarts. The pid file stays too, with a pid that another process may get; that would prevent PostgreSQL from
starting, because in a container pids repeat after every start.
"""

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.record import working_in

IPC_RMID = 0
SEGMENTS = Path("/proc/sysvipc/shm")


def sweep(data: Path) -> None:
    """Kill the orphaned processes of the cluster in `data`, free its shared memory, and remove its pid file.

    Does nothing after a clean stop. Idempotent. Raises `EmbeddedError` if the server is still running: it was started
    by another program, and is not stopped here.
    """
    pid_file = data / "postmaster.pid"
    try:
        lines = pid_file.read_text(encoding="utf-8").splitlines()
        postmaster = int(lines[0])
    except FileNotFoundError:
        return
    except (ValueError, IndexError):
        # Killed while it wrote the file, before it had other resources.
        pid_file.unlink(missing_ok=True)
        return
    orphans = working_in(data, "postgres")
    if any(process.pid == postmaster for process in orphans):
        raise EmbeddedError(
            f"A PostgreSQL (process {postmaster}) is already running on {data}.",
            f"Stop it first: kill -INT {postmaster}",
        )
    for orphan in orphans:
        # It may have noticed the end of its server by now.
        with suppress(psutil.NoSuchProcess):
            orphan.kill()
    psutil.wait_procs(orphans, timeout=10)
    if len(lines) > 6 and sys.platform == "linux":
        _free_segment(int(lines[6].split()[1]), postmaster)
    pid_file.unlink(missing_ok=True)


def _free_segment(segment: int, postmaster: int) -> None:
    """Free a segment if no process uses it and that server created it, because segment numbers are reused."""
    for row in SEGMENTS.read_text(encoding="ascii").splitlines()[1:]:
        _, identifier, _, _, creator, _, attached, *_ = map(int, row.split())
        if (identifier, creator, attached) == (segment, postmaster, 0):
            ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)

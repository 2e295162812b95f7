"""What a PostgreSQL that was killed leaves behind, and how it is removed.

Its children notice that they are alone, but not while they compute; one small segment of shared memory stays
until the machine is started again; and the file that says who runs here stays, with a pid that may soon be
another process's, which would keep PostgreSQL from ever starting again: in a container pids are the same after
every start.
"""

import ctypes
import sys
from pathlib import Path

import psutil

from frameledger_services.embedded.program import EmbeddedError
from frameledger_services.embedded.record import working_in

IPC_RMID = 0
SEGMENTS = Path("/proc/sysvipc/shm")


def sweep(data: Path) -> None:
    """End the orphans of the cluster in `data`, free its shared memory, remove its pid file.

    Nothing happens after a clean stop, nor when it is called twice. Raises `EmbeddedError` when its server is
    not dead: one that somebody else runs is not ours to end.
    """
    pid_file = data / "postmaster.pid"
    try:
        lines = pid_file.read_text(encoding="utf-8").splitlines()
        postmaster = int(lines[0])
    except FileNotFoundError:
        return
    except (ValueError, IndexError):
        # Killed while it wrote the file: it had nothing else yet.
        pid_file.unlink(missing_ok=True)
        return
    there = working_in(data, "postgres")
    if any(process.pid == postmaster for process in there):
        raise EmbeddedError(
            f"A PostgreSQL (process {postmaster}) already runs on {data}.",
            f"Stop it first: kill -INT {postmaster}",
        )
    for orphan in there:
        orphan.kill()
    psutil.wait_procs(there, timeout=10)
    if len(lines) > 6 and sys.platform == "linux":
        _free_segment(int(lines[6].split()[1]), postmaster)
    pid_file.unlink(missing_ok=True)


def _free_segment(segment: int, postmaster: int) -> None:
    """Only if no process uses it and that server made it: numbers are used again."""
    for row in SEGMENTS.read_text(encoding="ascii").splitlines()[1:]:
        _, identifier, _, _, creator, _, attached, *_ = map(int, row.split())
        if (identifier, creator, attached) == (segment, postmaster, 0):
            ctypes.CDLL(None).shmctl(segment, IPC_RMID, None)

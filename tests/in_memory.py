"""Keeps the tests' files in memory, if the machine has room. Each test has its own database, some three hundred files
that exist for a second. Creating and deleting it takes 0.10 s of processor time on a disk's file system (ext4), and
0.03 s in memory. No test needs a disk: files in memory also survive a SIGKILL of the server's processes.
"""

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 8 * 1024**3
"""Bytes that must be free there. A whole run fills a quarter of it."""


def use() -> None:
    """Let pytest create its temporary folders in memory, unless the environment names a folder. As elsewhere, it keeps
    those of failed tests and deletes those of earlier runs."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

"""Keeps the tests' files in memory, if the machine has room. Every test gets its own database, some three hundred files
that live for a second. Creating and deleting one takes 0.10 s of processor time on a disk's file system (ext4), and
0.03 s in memory. No test is about disks: what a server has written survives a SIGKILL of its processes in memory as
well.
"""

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ENOUGH = 8 * 1024**3
"""Bytes that must be free there. A whole run fills a quarter of it."""


def use() -> None:
    """Let pytest make its temporary folders in memory, unless the environment says where. It keeps those of failed
    tests and deletes those of earlier runs, wherever they are."""
    if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

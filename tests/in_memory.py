"""Where the tests' files lie: in memory, where the machine has room for that.

Every test gets a database of its own, some three hundred files that live for a second. To make and delete one took
0.10 s of processor time on a disk's file system (ext4), and takes 0.03 s in memory. Nothing here is about disks: what
a server has written survives a SIGKILL of its processes in memory as well.
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

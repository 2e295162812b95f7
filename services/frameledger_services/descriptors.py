"""The file descriptors of this process. If none is left, a connection cannot be made, and fails like one to a server
that is down: libpq gives no reason, and aiokafka only logs it."""

from __future__ import annotations

import errno
import os
import resource


def shortage() -> str:
    """Returns a sentence with the remedy if this process can open nothing more; otherwise an empty text."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno == errno.EMFILE:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return f"This process has no file descriptors left. Its limit is {limit}: raise it (`ulimit -n`)."
        if error.errno == errno.ENFILE:
            return "This machine has no file descriptors left (on Linux, `sysctl fs.file-max`)."
    return ""

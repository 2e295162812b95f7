"""The file descriptors of this process: whether any are left, and their maximum number. If none is left, connecting
fails as if the server were down: libpq gives no reason, and aiokafka only logs it."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

TARGET_LIMIT = 16_384
"""Enough for the followers of a gateway, its other connections and its files, several times over."""


def shortage() -> str:
    """Returns a sentence with the remedy if this process cannot open anything more, otherwise an empty text."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno == errno.EMFILE:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            return f"This process has no file descriptors left. Its limit is {limit}: raise it (`ulimit -n`)."
        if error.errno == errno.ENFILE:
            return "This machine has no file descriptors left (on Linux, `sysctl fs.file-max`)."
    return ""


def allow_enough() -> None:
    """Raise the limit of this process to `TARGET_LIMIT`, or as far as its user may. Most systems start with 1,024 or
    256."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= TARGET_LIMIT:
        return
    # macOS allows less than it reports.
    with suppress(OSError, ValueError):
        target = TARGET_LIMIT if most == resource.RLIM_INFINITY else min(TARGET_LIMIT, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, most))

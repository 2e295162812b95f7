"""Data directories in which an `up` appears to run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from frameledger_services import data_directory
from frameledger_services.settings_sources import running_file


@contextmanager
def running_in(directory: Path, addresses: Mapping[str, str] | None = None) -> Iterator[None]:
    """Acts as an `up` that runs in the directory, with the addresses of its servers. These remain afterwards, as if it
    was killed."""
    (directory / data_directory.RUN).mkdir(parents=True, exist_ok=True)
    if addresses is not None:
        running_file(directory).write_text(json.dumps(addresses), encoding="utf-8")
    lock = os.open(directory / data_directory.RUN / data_directory.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(lock)

"""What `doctor` looks at where `frameledger up` keeps its servers: the disk, and whether it runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from frameledger_services.cli.doctor_finding import Finding
from frameledger_services.settings import Settings

LITTLE = 1024 * 1024 * 1024
"""Bytes. With less than this left on the disk it is time to make room: PostgreSQL's own journal may take as much."""

LEAST = 256 * 1024 * 1024
"""Bytes without which `up` does not start either."""


def disk(settings: Settings) -> Iterator[Finding]:
    """What is left of the disk of the data directory, if there is one."""
    directory = settings.data_dir.resolve()
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return
    said = f"{_size(free)} are free on the disk of {directory}"
    if free >= LITTLE:
        yield Finding("disk", "ok", f"{said}.")
        return
    yield Finding(
        "disk",
        "fail" if free < LEAST else "warn",
        f"{said}: Kafka and PostgreSQL end when it is full, and stay away until there is room.",
        "Make room there; what `frameledger up` runs then comes back by itself, within a minute.",
    )


def start_it(settings: Settings, variable: str) -> str:
    """What to do about a server that does not answer."""
    if _is_up(settings.data_dir.resolve()):
        return "`frameledger up` runs and tries to start it again: `frameledger status` says why it is away."
    return f"Start it: `frameledger up`, or set {variable}."


def _is_up(directory: Path) -> bool:
    # The embedded servers are for Linux and macOS; the command line is for all.
    try:
        from frameledger_services.embedded.directory import is_claimed
        from frameledger_services.embedded.program import EmbeddedError
    except ImportError:
        return False
    try:
        return is_claimed(directory)
    except (EmbeddedError, OSError):
        return False


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GB" if count >= 2**30 else f"{count // 2**20} MB"

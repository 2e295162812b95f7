"""What `doctor` says of the servers: the disk of the embedded ones, and what a database server would lose or keep."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.settings import Settings
from frameledger_services.store import server
from frameledger_services.store.server import Server

LITTLE = 1024 * 1024 * 1024
"""Bytes. With less than this left on the disk it is time to make room: PostgreSQL's own journal may take as much."""

LEAST = 256 * 1024 * 1024
"""Bytes without which `up` does not start either."""

LONG_SECONDS = 600.0
"""A transaction that is open for longer keeps versions of rows that are changed with each batch."""


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


async def findings(connection: AsyncConnection[Any]) -> list[Finding]:
    """All of them; those that have nothing to say are left out, but for standbys that cannot be seen."""
    return list(of(await server.look(connection)))


def of(found: Server) -> Iterator[Finding]:
    """What these answers mean."""
    if found.is_standby or found.is_read_only:
        what = "a standby" if found.is_standby else "set to read only"
        yield Finding(
            "read only",
            "fail",
            f"This database is {what}: nothing can be stored in it.",
            "Let the address lead to the primary; with several hosts in it the one that can be written to is taken.",
        )
    if found.waiting:
        yield Finding(
            "standbys",
            "fail",
            f"{found.waiting:,} commits wait for a standby, the longest for {found.waiting_seconds:,.0f} s.",
            "Have the standby answer, or take it out of synchronous_standby_names.",
        )
    if found.asynchronous:
        yield Finding(
            "standbys",
            "warn",
            f"{found.asynchronous:,} standbys get commits after they were acknowledged: a failover to one may forget "
            "the newest. Frames are folded again from the log; calls whose claim is forgotten are ambiguous.",
            "Name them in synchronous_standby_names if a failover must forget nothing.",
        )
    if not found.sees_all:
        yield Finding(
            "standbys",
            "ok",
            "Whether there are standbys and who keeps old rows is not known: our user sees its own sessions only.",
            "GRANT pg_read_all_stats TO our user lets `doctor` see them.",
        )
    if found.oldest_seconds > LONG_SECONDS:
        yield Finding(
            "old rows",
            "warn",
            f"{found.oldest} has been in a transaction for {found.oldest_seconds:,.0f} s: all rows that were changed "
            "since are kept, and each batch of a projector takes longer.",
            "End it if it was forgotten; have long reports read from a standby.",
        )


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

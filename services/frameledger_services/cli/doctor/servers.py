"""Findings of `doctor` about the servers: disk space of the embedded ones, and the durability of the database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.data_directory import MIN_SPACE
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import server
from frameledger_services.store.server import Server

DATABASE = "FRAMELEDGER_DATABASE_URL"

LOW_SPACE = 1024 * 1024 * 1024
"""Free bytes below which `doctor` warns: PostgreSQL's WAL may take as much."""

LONG_SECONDS = 600.0
"""Age of a transaction, in seconds, above which `doctor` warns: it retains old row versions of every batch."""


def disk(settings: Settings) -> Iterator[Finding]:
    """Checks the free disk space of the data directory, if it exists."""
    directory = settings.directory
    try:
        free = shutil.disk_usage(directory).free
    except OSError:
        return
    free_space = f"{_size(free)} are free on the disk of {directory}"
    if free >= LOW_SPACE:
        yield Finding("disk", "ok", f"{free_space}.")
        return
    yield Finding(
        "disk",
        "fail" if free < MIN_SPACE else "warn",
        f"{free_space}: Kafka and PostgreSQL stop when it is full, and restart when there is space.",
        "Free disk space. What `frameledger up` runs then restarts by itself within a minute.",
    )


def start_it(settings: Settings, variable: str) -> str:
    """Returns the remedy for a server that does not answer at the address of this variable."""
    if _is_of_up(settings.directory, "postgres" if variable == DATABASE else "kafka"):
        return "`frameledger up` is running and restarts it: `frameledger status` says why it is down."
    return f"Start it, or set {variable} to its address. `frameledger config` shows where the address comes from."


def connect_to_database(settings: Settings, error: psycopg.Error) -> str:
    """Returns the remedy for a database that accepted no connection. If it answered why, it is running, so the remedy
    is not to start it."""
    said = str(error)
    if "too many c" in said or "connection slots" in said:
        return (
            "Raise its max_connections, or end sessions that are not needed: "
            "SELECT application_name, count(*) FROM pg_stat_activity GROUP BY 1."
        )
    if isinstance(error, psycopg.errors.LockNotAvailable):
        return (
            "Somebody has locked a table for long, such as by VACUUM FULL: SELECT pid, query FROM pg_locks INNER JOIN "
            "pg_stat_activity USING (pid) WHERE granted AND mode = 'AccessExclusiveLock'."
        )
    # Without a SQLSTATE it refused the session; class 57P is of a server that stops or starts.
    is_refusal = (error.sqlstate or "57P")[:3] != "57P"
    if is_refusal or ("FATAL:" in said and not _is_of_up(settings.directory, "postgres")):
        return (
            f"The server runs and gives this reason: change it there, or {DATABASE}. "
            "`frameledger config` shows where the address comes from."
        )
    return start_it(settings, DATABASE)


async def findings(connection: Connection) -> list[Finding]:
    """Returns the problems found, and a warning if this user may not see standbys."""
    return list(of(await server.look(connection)))


def of(state: Server) -> Iterator[Finding]:
    """Converts the server's state to findings."""
    if state.is_standby or state.is_read_only:
        what = "a standby" if state.is_standby else "set to read only"
        yield Finding(
            "read only",
            "fail",
            f"This database is {what}: nothing can be stored.",
            "Use the address of the primary. Of several hosts in the address, the writable one is chosen."
            if state.is_standby
            else "Check its disk: managed services do this when it is full. If it has space, set "
            "default_transaction_read_only to off for this database and its users.",
        )
    if state.waiting:
        yield Finding(
            "standbys",
            "fail",
            f"{state.waiting:,} commits wait for a standby, the longest for {state.waiting_seconds:,.0f} s.",
            "Restart the standby, or remove it from synchronous_standby_names.",
        )
    if state.asynchronous:
        yield Finding(
            "standbys",
            "warn",
            f"{state.asynchronous:,} standbys are asynchronous: a failover to one may lose the newest commits. Frames "
            "are folded again from the log; calls whose claim is lost become ambiguous.",
            "Add them to synchronous_standby_names if a failover must lose nothing.",
        )
    if not state.sees_all:
        yield Finding(
            "standbys",
            "ok",
            "Standbys and old transactions are unknown: this database user sees only its own sessions.",
            "GRANT pg_read_all_stats to this user.",
        )
    if state.oldest_seconds > LONG_SECONDS:
        yield Finding(
            "old rows",
            "warn",
            f"A transaction of {state.oldest} has been open for {state.oldest_seconds:,.0f} s: PostgreSQL retains all "
            "row versions since then, and batches of projectors take longer.",
            "End it if it is not needed; run long reports on a standby.",
        )


def _is_of_up(directory: Path, server: str) -> bool:
    """Returns whether a running `up` started this server. One that a setting names, it does not start again."""
    # The embedded servers need Linux or macOS; the command line also runs on Windows.
    try:
        from frameledger_services.embedded.record import State, record_of_running
    except ImportError:
        return False
    record = record_of_running(directory)
    processes = () if record is None else record.processes
    return any(one.name == server and one.state is not State.EXTERNAL for one in processes)


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GB" if count >= 2**30 else f"{count // 2**20} MB"

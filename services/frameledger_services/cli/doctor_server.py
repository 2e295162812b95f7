"""What `doctor` says of the database server: whether it can be written to, and what a failover would lose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import AsyncConnection

from frameledger_services.cli.doctor_finding import Finding
from frameledger_services.store import server
from frameledger_services.store.server import Server

LONG_SECONDS = 600.0
"""A transaction that is open for longer keeps versions of rows that are changed with each batch."""


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

"""Addresses of the traces of frames: `FRAMELEDGER_TRACE_URL`, with an id in it. Without it nobody asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from frameledger_services.store import history

Connection = AsyncConnection[Any]

_ID = "{trace_id}"


async def begun(
    connection: Connection, context_id: str, first: int, last: int, trace_url: str | None
) -> list[tuple[int, str]]:
    """Returns, in order, the first frame of each trace that begins between two versions, and the trace's address."""
    if trace_url is None:
        return []
    found = await history.traces_begin(connection, context_id, first, last)
    return [(version, trace_url.replace(_ID, trace_id)) for version, trace_id in found]


async def at(
    connection: Connection, context_id: str, versions: Sequence[int], trace_url: str | None
) -> dict[int, str]:
    """Returns the addresses of the traces of those frames that have one, by version."""
    if trace_url is None or not versions:
        return {}
    found = await history.traces_at(connection, context_id, versions)
    return {version: trace_url.replace(_ID, trace_id) for version, trace_id in found.items()}

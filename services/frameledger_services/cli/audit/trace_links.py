"""Addresses of the traces of frames, from `FRAMELEDGER_TRACE_URL` with the trace's id. Empty if it is not set."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger_services.database_types import Connection
from frameledger_services.store import history

_ID = "{trace_id}"


async def begun(
    connection: Connection, context_id: str, first: int, last: int, trace_url: str | None
) -> list[tuple[int, str]]:
    """Returns, in order, the version of the first frame of each trace that starts between two versions, and the trace's
    address."""
    if trace_url is None:
        return []
    trace_ids = await history.traces_begin(connection, context_id, first, last)
    return [(version, trace_url.replace(_ID, trace_id)) for version, trace_id in trace_ids]


async def at(
    connection: Connection, context_id: str, versions: Sequence[int], trace_url: str | None
) -> dict[int, str]:
    """Returns the addresses of the traces of frames, by version. Frames without a trace are left out."""
    if trace_url is None or not versions:
        return {}
    trace_ids = await history.traces_at(connection, context_id, versions)
    return {version: trace_url.replace(_ID, trace_id) for version, trace_id in trace_ids.items()}

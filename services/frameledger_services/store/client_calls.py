"""Calls of functions that a client declared and answers itself (RA5.client), and other calls that wait.

Only such a call starts with the frame that dispatches it, which identifies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.contexts import loads

BY_CLIENT = "(started_version = dispatched_version) IS TRUE"
"""SQL: whether a client answers the call; never NULL."""

WAITS_FOR_CLIENT = f"(status = 'waiting' AND {BY_CLIENT})"
"""SQL: whether the call waits for its client, which may never return. It is not work for a person."""

WAITS_FOR_PERSON = f"(status = 'waiting' AND NOT {BY_CLIENT})"
"""SQL: whether the call waits for a person. Every count of people's work uses this."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that waits."""

    tool_call_id: str
    function_name: str
    requested_version: int
    waiting_for: str | None
    waiting_deadline: datetime | None
    by_client: bool
    """Whether a client answers it, rather than a person for a service's function."""

    interrupted: bool
    """Whether it was interrupted, so that its client need not execute it any more."""


@dataclass(frozen=True, slots=True)
class OtherCall:
    """A call that waits for a party other than its client."""

    function_name: str
    waiting_for: str | None


@dataclass(frozen=True, slots=True)
class BegunCall:
    """A call that started to wait for its client with the frame at this version."""

    version: int
    tool_call_id: str
    function_name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call that a client answers, or answered."""

    tool_call_id: str
    function_name: str
    arguments: Any
    requested_version: int
    is_waiting: bool
    interrupted: bool
    settled_version: int | None
    result: Any
    """None if there is none yet, or the call was cancelled."""


async def waiting(connection: Connection, context_id: str) -> list[WaitingCall]:
    """Returns the calls of a conversation that wait, in the order in which they were announced."""
    async with connection.cursor(row_factory=class_row(WaitingCall)) as cursor:
        await cursor.execute(
            f"""
            SELECT tool_call_id, function_name, requested_version, waiting_for, waiting_deadline,
                {BY_CLIENT} AS by_client, interrupted_version IS NOT NULL AS interrupted
            FROM tool_calls
            WHERE context_id = %s AND status = 'waiting'
            ORDER BY requested_version, ordinal
            """,
            (context_id,),
        )
        return await cursor.fetchall()


async def begun(connection: Connection, context_id: str, first: int, last: int) -> list[BegunCall]:
    """Returns the calls that started to wait for their client with a frame between two versions, in the order of their
    starts."""
    cursor = await connection.execute(
        f"""
        SELECT started_version, tool_call_id, function_name, arguments::text
        FROM tool_calls
        WHERE context_id = %s AND started_version BETWEEN %s AND %s AND {BY_CLIENT}
        ORDER BY started_version, requested_version, ordinal
        """,
        (context_id, first, last),
    )
    return [
        BegunCall(started, call, name, loads(arguments))
        for started, call, name, arguments in await cursor.fetchall()
    ]


async def of_clients(
    connection: Connection, context_id: str, tool_call_ids: Sequence[str]
) -> dict[str, ClientCall]:
    """Returns the calls with these ids that a client answers, by id; the newest one if several have the same id."""
    if not tool_call_ids:
        return {}
    return {
        one.tool_call_id: one
        for one in await _calls(connection, context_id, "tool_call_id = ANY (%s)", list(tool_call_ids))
    }


async def left_since(connection: Connection, context_id: str, version: int) -> list[ClientCall]:
    """Returns the calls that were announced at this version or later, and wait for their client."""
    return await _calls(connection, context_id, "requested_version >= %s AND status = 'waiting'", version)


async def left_at(connection: Connection, context_id: str, version: int, until: int) -> list[ClientCall]:
    """Returns the calls that were announced between two versions and still waited for their client at the second."""
    which = "requested_version >= %s AND requested_version < %s AND (settled_version >= %s) IS NOT FALSE"
    return await _calls(connection, context_id, which, version, until, until)


async def others_waiting_since(connection: Connection, context_id: str, version: int) -> list[OtherCall]:
    """Returns the calls that were announced at this version or later, and wait for a party other than their client.
    Background calls are not included, because nothing waits for them."""
    async with connection.cursor(row_factory=class_row(OtherCall)) as cursor:
        await cursor.execute(
            f"""
            SELECT function_name, waiting_for
            FROM tool_calls
            WHERE context_id = %s AND requested_version >= %s AND {WAITS_FOR_PERSON}
                AND synchronous IS NOT FALSE
            ORDER BY requested_version, ordinal
            """,
            (context_id, version),
        )
        return await cursor.fetchall()


async def _calls(connection: Connection, context_id: str, which: str, *parameters: Any) -> list[ClientCall]:
    cursor = await connection.execute(
        f"""
        SELECT tool_call_id, function_name, arguments::text, requested_version, status = 'waiting',
            interrupted_version IS NOT NULL, settled_version, result::text
        FROM tool_calls
        WHERE context_id = %s AND {BY_CLIENT} AND {which}
        ORDER BY requested_version, ordinal
        """.encode(),
        (context_id, *parameters),
    )
    return [
        ClientCall(
            *(call, name, loads(arguments), requested, is_waiting, interrupted, settled),
            None if result is None else loads(result),
        )
        for call, name, arguments, requested, is_waiting, interrupted, settled, result in await cursor.fetchall()
    ]

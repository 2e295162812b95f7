"""What a fork reads from its original besides the context: the link of the hash chain, and the running calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


@dataclass(frozen=True, slots=True)
class ForkedCall:
    """A call that was running at a version.

    `place` is the index of its tool message among the messages of the context at that version; None for an
    asynchronous call, and for one whose history was replaced.
    """

    tool_call_id: str
    synchronous: bool
    place: int | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a conversation comes from."""

    version: int
    """Number of its stored frames."""

    origin: dict[str, Any] | None


async def chain_at(connection: Connection, context_id: str, version: int) -> bytes | None:
    """Returns the link of the hash chain at a version; None if there is no such frame."""
    cursor = await connection.execute(
        "SELECT chain FROM frames WHERE context_id = %s AND version = %s", (context_id, version)
    )
    row = await cursor.fetchone()
    return None if row is None else bytes(row[0])


async def running_calls(connection: Connection, context_id: str, version: int) -> list[ForkedCall]:
    """Returns the calls that were running at a version of a conversation, in the order in which they started."""
    async with connection.cursor(row_factory=class_row(ForkedCall)) as cursor:
        await cursor.execute(
            """
            SELECT call.tool_call_id, call.synchronous, CASE WHEN call.synchronous THEN said.place END AS place
            FROM tool_calls AS call
            -- The start of a call writes its messages. A frame that starts calls of a client may start several, and
            -- write into the message of another call (RA5.client), so the message has to name the call.
            LEFT JOIN LATERAL (
                SELECT (
                    SELECT count(*) FROM messages AS earlier
                    WHERE earlier.context_id = tool.context_id AND earlier.era = tool.era
                        AND earlier.position < tool.position
                        AND earlier.valid_from <= %(version)s AND earlier.valid_to > %(version)s
                ) AS place
                FROM messages AS tool
                WHERE tool.context_id = call.context_id AND tool.era = era_at(%(id)s, %(version)s)
                    AND tool.valid_from = call.started_version AND tool.valid_to > %(version)s
                    AND tool.role = 'tool' AND json_text(tool.message, 'tool_call_id') = call.tool_call_id
            ) AS said ON true
            WHERE call.context_id = %(id)s AND call.started_version <= %(version)s
                AND (call.settled_version IS NULL OR call.settled_version > %(version)s)
            ORDER BY call.started_version, call.requested_version, call.ordinal
            """,
            {"id": context_id, "version": version},
        )
        return await cursor.fetchall()


async def origin_of(connection: Connection, context_id: str) -> Origin | None:
    """Returns where a conversation comes from; None if it does not exist."""
    async with connection.cursor(row_factory=class_row(Origin)) as cursor:
        await cursor.execute("SELECT version, origin FROM contexts WHERE context_id = %s", (context_id,))
        return await cursor.fetchone()

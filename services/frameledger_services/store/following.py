"""Reads for many followers in one statement: the frames after each cursor, and the heads.

One statement reads one snapshot, and costs one round trip for all followers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from frameledger_services.database_types import Connection
from frameledger_services.store.limited_frames import COLUMNS, limited
from frameledger_services.store.wanted_frames import PagedFrame

TYPES_SEPARATOR = ","
"""Separates the names of types in a cursor; no type name contains it."""


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """The position of a client in a conversation, and the types of frames that it wants."""

    context_id: str

    version: int | None
    """The last version that was read, 0 before the first. None means the newest one."""

    types: str | None = None
    """The wanted types, separated by `TYPES_SEPARATOR`; None for all."""

    erased_version: int | None = None
    """The last erasure of the conversation that its reader has seen."""


@dataclass(frozen=True, slots=True)
class StreamHead:
    """The current state of a conversation."""

    version: int
    status: str
    """As in the view `conversations`."""

    ended: bool
    open_run_id: str | None


@dataclass(frozen=True, slots=True)
class StreamReading:
    """The frames and the state after one cursor."""

    head: StreamHead | None
    """None if there is no such conversation."""

    erased_version: int | None
    """The version up to which it was erased, if that is not before the cursor; None if it was not."""

    frames: list[PagedFrame] = field(default_factory=list)
    """The frames in order; only the first ones if there are many. Frames of other types have no payload."""


async def read(
    connection: Connection, cursors: Sequence[StreamCursor], *, most_frames: int, most_bytes: int
) -> list[StreamReading]:
    """Returns the frames after each cursor: at most `most_frames` each, and fewer once their wanted payloads reach
    `most_bytes`."""
    parameters = {
        "context_ids": [cursor.context_id for cursor in cursors],
        "versions": [cursor.version for cursor in cursors],
        "types": [cursor.types for cursor in cursors],
        "separator": TYPES_SEPARATOR,
        "most_frames": most_frames,
        "most_bytes": most_bytes,
    }
    readings: list[StreamReading] = []
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(READ, parameters)
        for (
            number,
            erased,
            newest,
            status,
            ended,
            run_id,
            version,
            *rest,
        ) in await cursor.fetchall():
            if number > len(readings):
                head = None if newest is None else StreamHead(newest, status, ended, run_id)
                readings.append(StreamReading(head, erased))
            if version is not None:
                readings[-1].frames.append(PagedFrame(version, *rest))
    return readings


# An erasure counts if nothing that it erased is stored: in old databases an erased id began again at 1.
READ = f"""
    SELECT
        asked.number,
        erased.version,
        head.version,
        CASE
            WHEN head.parked_version IS NOT NULL THEN 'parked'
            WHEN head.ended THEN 'ended'
            WHEN head.recording THEN 'recording'
            WHEN head.open_run_id IS NOT NULL THEN 'answering'
            WHEN head.open_call_count > 0 THEN 'calling'
            ELSE 'quiet'
        END AS status,
        head.ended,
        head.open_run_id,
        next.*
    FROM unnest(%(context_ids)s::text[], %(versions)s::bigint[], %(types)s::text[])
        WITH ORDINALITY AS asked (context_id, version, types, number)
    LEFT JOIN LATERAL (
        SELECT version, ended, recording, open_run_id, open_call_count, parked_version
        FROM contexts
        WHERE context_id = asked.context_id
        LIMIT 1
    ) AS head ON true
    LEFT JOIN LATERAL (
        SELECT erasures.version
        FROM erasures
        WHERE erasures.context_id = asked.context_id AND erasures.version >= coalesce(asked.version, 0)
            AND NOT EXISTS (
                SELECT FROM frames
                WHERE frames.context_id = erasures.context_id AND frames.version <= erasures.version
            )
        ORDER BY erasures.version DESC
        LIMIT 1
    ) AS erased ON true
    LEFT JOIN LATERAL (
        WITH behind AS (
            SELECT
                {COLUMNS},
                CASE
                    WHEN asked.types IS NULL OR type = ANY (string_to_array(asked.types, %(separator)s)) THEN payload
                END AS payload
            FROM frames
            WHERE context_id = asked.context_id AND version > coalesce(asked.version, head.version)
            ORDER BY version
            LIMIT %(most_frames)s
        ),
        {limited("behind")}
        SELECT * FROM limited
    ) AS next ON true
    ORDER BY asked.number, next.version
"""

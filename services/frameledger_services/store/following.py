"""What many followers of conversations read, in one statement: the frames behind each one's cursor, and the heads.

One statement is of one moment, and costs one round trip for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from frameledger_services.database_types import Connection
from frameledger_services.store.wanted_frames import PagedFrame

TYPES_SEPARATOR = ","
"""Between the names of types in a cursor; no type has it in its name."""


@dataclass(frozen=True, slots=True)
class StreamCursor:
    """How far somebody has read a conversation, and which of its frames."""

    context_id: str

    version: int | None
    """The last version that was read; 0 before the first. None is the newest one, whichever that is."""

    types: str | None = None
    """The types that are wanted, separated by `TYPES_SEPARATOR`; None for all."""

    erased_version: int | None = None
    """The last erasure of the conversation that its reader was told of."""


@dataclass(frozen=True, slots=True)
class StreamHead:
    """How a conversation stands now."""

    version: int
    status: str
    """As in the view `conversations`."""

    ended: bool
    open_run_id: str | None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one cursor has before it."""

    head: StreamHead | None
    """None if there is no such conversation."""

    erased_version: int | None
    """The version up to which it was erased, if that is not before the cursor; None if it was not."""

    partitions: int | None
    """The number of partitions of the topic; None before a projector has seen it."""

    frames: list[PagedFrame] = field(default_factory=list)
    """In order, the first ones only if there are many; without payload those whose type is not wanted."""


async def read(
    connection: Connection, topic: str, cursors: Sequence[StreamCursor], *, most_frames: int, most_bytes: int
) -> list[Reading]:
    """Returns what each cursor has before it: of each `most_frames` at most, and no more of them than it takes to reach
    `most_bytes` of wanted payloads."""
    parameters = {
        "topic": topic,
        "context_ids": [cursor.context_id for cursor in cursors],
        "versions": [cursor.version for cursor in cursors],
        "types": [cursor.types for cursor in cursors],
        "separator": TYPES_SEPARATOR,
        "most_frames": most_frames,
        "most_bytes": most_bytes,
    }
    readings: list[Reading] = []
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(READ, parameters)
        for (
            number,
            partitions,
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
                readings.append(Reading(head, erased, partitions))
            if version is not None:
                readings[-1].frames.append(PagedFrame(version, *rest))
    return readings


# Payloads are limited twice: by their stored size, which needs no decompression, and what is left by their true size.
# An erasure counts if nothing of what it erased is stored: in old databases an erased id began again at 1.
READ = """
    SELECT
        asked.number,
        (SELECT partitions FROM topics WHERE topic = %(topic)s ORDER BY generation DESC LIMIT 1) AS partitions,
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
        next.version, next.frame_id, next.type, next.outcome, next.reason, next.logged_at, next.produced_at,
        next.source, next.run_id, next.tool_call_id, next.causation_id, next.trace_id, next.partition, next.generation,
        next."offset", next.payload
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
                version, frame_id, type, outcome, reason, logged_at, produced_at, source, run_id, tool_call_id,
                causation_id, trace_id, partition, generation, "offset",
                CASE
                    WHEN asked.types IS NULL OR type = ANY (string_to_array(asked.types, %(separator)s)) THEN payload
                END AS payload
            FROM frames
            WHERE context_id = asked.context_id AND version > coalesce(asked.version, head.version)
            ORDER BY version
            LIMIT %(most_frames)s
        ),
        sized AS (
            SELECT *, sum(pg_column_size(payload)) OVER before AS bytes_before
            FROM behind
            WINDOW before AS (ORDER BY version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ),
        valued AS (
            SELECT
                version, frame_id, type, outcome, reason, logged_at, produced_at, source, run_id, tool_call_id,
                causation_id, trace_id, partition, generation, "offset",
                convert_to(payload::text, 'UTF8') AS payload
            FROM sized
            WHERE coalesce(bytes_before, 0) < %(most_bytes)s
        ),
        counted AS (
            SELECT *, sum(octet_length(payload)) OVER before AS bytes_before
            FROM valued
            WINDOW before AS (ORDER BY version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        )
        SELECT
            version, frame_id, type, outcome, reason, logged_at, produced_at, source, run_id, tool_call_id,
            causation_id, trace_id, partition, generation, "offset", payload
        FROM counted
        WHERE coalesce(bytes_before, 0) < %(most_bytes)s
    ) AS next ON true
    ORDER BY asked.number, next.version
"""

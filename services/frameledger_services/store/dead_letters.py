"""Dead letters: read, count, mark as retried, add. Each function runs one statement on the caller's connection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from frameledger.record import LogPosition
from frameledger_services.database_types import Connection
from frameledger_services.store.outbox import OutboxRow
from frameledger_services.store.record_headers import headers_as_json, headers_from_json

AT_ONCE = 16
"""The number of dead letters that are read together with their values, each of which may be as large as a record."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that is not a valid frame, as it was received."""

    topic: str
    partition: int
    offset: int
    logged_at: datetime | None
    recorded_at: datetime
    retried_at: datetime | None
    code: str
    error: str
    context_id: str | None
    key: bytes | None
    value: bytes | None
    generation: int
    headers: str
    """JSON for `record_headers.headers_from_json`, not parsed here, so that a manually written row does not prevent
    reading the others."""

    @property
    def record_headers(self) -> tuple[tuple[str, bytes | None], ...] | None:
        """The headers of the record; None if `headers` are not valid headers, because they were written by hand."""
        try:
            return headers_from_json(self.headers)
        except ValueError:
            return None


async def newest(connection: Connection, topic: str, limit: int) -> list[DeadLetter]:
    """Returns the dead letters of a topic, the newest first."""
    async with connection.cursor(row_factory=class_row(DeadLetter)) as cursor:
        await cursor.execute(
            f"SELECT {_COLUMNS} FROM rejected_frames WHERE topic = %s "
            'ORDER BY recorded_at DESC, partition, "offset" DESC LIMIT %s',
            (topic, limit),
        )
        return await cursor.fetchall()


async def at(connection: Connection, places: Sequence[LogPosition]) -> list[DeadLetter]:
    """Returns the dead letters at these places, in the given order. A place without one is omitted."""
    async with connection.cursor(row_factory=class_row(DeadLetter)) as cursor:
        await cursor.execute(
            _AT,
            (
                [place.topic for place in places],
                [place.partition for place in places],
                [place.generation for place in places],
                [place.offset for place in places],
            ),
        )
        return await cursor.fetchall()


async def places_within(
    connection: Connection, topic: str, context_id: str, partition: int, first: int, end: int
) -> set[tuple[int, int]]:
    """Returns the generations and offsets of a conversation's records that became dead letters instead of frames,
    between two offsets of a partition."""
    cursor = await connection.execute(
        """
        SELECT generation, "offset" FROM rejected_frames
        WHERE topic = %s AND partition = %s AND "offset" >= %s AND "offset" < %s AND context_id = %s
            -- Records that were too large for another topic have the place of a frame (`keep_unsendable`).
            AND code <> 'too_large'
        """,
        (topic, partition, first, end, context_id),
    )
    return set(await cursor.fetchall())


async def not_retried(connection: Connection, topic: str) -> list[LogPosition]:
    """Returns the places of a topic's dead letters that were never republished, the oldest first."""
    async with connection.cursor(row_factory=class_row(LogPosition)) as cursor:
        await cursor.execute(
            """
            SELECT topic, partition, "offset", generation FROM rejected_frames
            WHERE topic = %s AND retried_at IS NULL
            ORDER BY recorded_at, partition, "offset"
            """,
            (topic,),
        )
        return await cursor.fetchall()


async def count_not_retried(connection: Connection) -> int:
    """Returns the number of dead letters that were never republished."""
    cursor = await connection.execute("SELECT count(*) FROM rejected_frames WHERE retried_at IS NULL")
    row = await cursor.fetchone()
    assert row is not None, "an aggregate has one row"
    return int(row[0])


async def note_retried(connection: Connection, place: LogPosition) -> None:
    """Record that a dead letter was republished now. The last time counts."""
    await connection.execute(
        """
        UPDATE rejected_frames SET retried_at = clock_timestamp()
        WHERE topic = %s AND partition = %s AND generation = %s AND "offset" = %s
        """,
        (place.topic, place.partition, place.generation, place.offset),
    )


async def keep_unsendable(connection: Connection, rows: Sequence[OutboxRow]) -> None:
    """Keep outbox rows that are too large for their destination topic. An existing dead letter stays unchanged."""
    await connection.execute(
        """
        INSERT INTO rejected_frames
            (topic, partition, generation, "offset", code, error, context_id, key, value, headers)
        SELECT topic, partition, generation, "offset",
            'too_large', 'the topic that it was to be copied to does not take so much',
            context_id, key, value, headers::json
        FROM unnest(
            %s::text[], %s::int[], %s::int[], %s::bigint[], %s::text[], %s::bytea[], %s::bytea[], %s::text[]
        ) AS refused (topic, partition, generation, "offset", context_id, key, value, headers)
        ON CONFLICT DO NOTHING
        """,
        (
            [one.topic for one in rows],
            [one.partition for one in rows],
            [one.generation for one in rows],
            [one.offset for one in rows],
            [one.context_id for one in rows],
            [one.key for one in rows],
            [one.value for one in rows],
            [headers_as_json(one.headers).decode() for one in rows],
        ),
    )


_COLUMNS = """
    topic, partition, generation, "offset", logged_at, recorded_at, retried_at, code, error, context_id, key, value,
    headers::text AS headers
"""

_AT = f"""
    SELECT {_COLUMNS}
    FROM unnest(%s::text[], %s::int[], %s::int[], %s::bigint[])
        WITH ORDINALITY AS asked (topic, partition, generation, "offset", number)
    INNER JOIN rejected_frames USING (topic, partition, generation, "offset")
    ORDER BY asked.number
"""

"""The statements of dead letters, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from frameledger.record import Place


async def note_retried(connection: AsyncConnection[Any], place: Place) -> None:
    """Note that a dead letter was published again, now. The last time counts."""
    await connection.execute(
        """
        UPDATE rejected_frames SET retried_at = clock_timestamp()
        WHERE topic = %s AND partition = %s AND generation = %s AND "offset" = %s
        """,
        (place.topic, place.partition, place.generation, place.offset),
    )


async def keep_unsendable(
    connection: AsyncConnection[Any],
    rows: Sequence[tuple[str, int, int, int, str | None, bytes | None, bytes | None, bytes]],
) -> None:
    """Keep rows that are too large for their topic, given as topic, partition, generation, offset, context, key, value
    and headers (of `outbox.headers_as_json`). A dead letter exists already, and stays as it is."""
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
        tuple(map(list, zip(*((*row[:-1], row[-1].decode()) for row in rows), strict=True))),
    )

"""SQL for stored frames whose payloads are limited by their bytes: part of the statements of pages and of followers."""

from __future__ import annotations

COLUMNS = (
    "version, frame_id, type, outcome, reason, logged_at, produced_at, source, run_id, tool_call_id, "
    'causation_id, trace_id, partition, generation, "offset"'
)
"""Columns of `frames`: the fields of a `PagedFrame` in order, without its payload."""


def limited(source: str, order: str = "ASC") -> str:
    """Returns the last queries of a WITH clause that has `source`: frames with `COLUMNS` and `payload`. The query
    `limited` has the first of these by version, with their payloads as bytes: no more than needed to reach the
    parameter `most_bytes`, and at least one.

    Payloads are limited twice: by their stored size, which needs no decompression, and the remaining ones by their true
    size.
    """
    return f"""
        sized AS (
            SELECT *, sum(pg_column_size(payload)) OVER before AS bytes_before
            FROM {source}
            WINDOW before AS (ORDER BY version {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ),
        valued AS (
            SELECT {COLUMNS}, convert_to(payload::text, 'UTF8') AS payload
            FROM sized
            WHERE coalesce(bytes_before, 0) < %(most_bytes)s
        ),
        counted AS (
            SELECT *, sum(octet_length(payload)) OVER before AS bytes_before
            FROM valued
            WINDOW before AS (ORDER BY version {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ),
        limited AS (
            SELECT {COLUMNS}, payload
            FROM counted
            WHERE coalesce(bytes_before, 0) < %(most_bytes)s
        )
    """

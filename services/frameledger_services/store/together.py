"""A whole batch as one statement: for small batches, whose time is that of asking and being answered.

A statement by itself is a transaction by itself, so there is nothing between its beginning and its commit at which we
could die. What it does to the tables is what `batch` does in many statements. It begins, as every batch does, by
locking the rows of its partitions with the epoch and the offset that it expects; unless it finds all of them, it does
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg import AsyncRawCursor
from sqlalchemy import Table

from frameledger_services.store import recordset, tables
from frameledger_services.store.batch import ENDED, ENDING, Added, Changed, Connection, Ended
from frameledger_services.store.projections import PROJECTION, Progress

Part = tuple[Table, tuple[str, ...], bool]
"""A table, with the columns of what is added to it (True) or the key of what is changed in it."""


async def store(
    connection: Connection,
    topic: str,
    batch: Sequence[Progress],
    ended: Sequence[Ended] = (),
    writes: Sequence[Added | Changed] = (),
) -> set[int]:
    """Move the partitions of a batch on, and write it, all or nothing.

    A partition that is missing in the answer belongs to somebody else: its projector is fenced, and nothing was done.
    Outside of a transaction the answer is the commit. In one, more statements of the batch may follow, and the commit.
    Raises psycopg's errors, and then nothing was done either.
    """
    parts: list[Part] = []
    parameters = [recordset.encoded(_PROGRESS, map(_values, batch)), topic, topic]
    if ended:
        parameters.append(recordset.encoded(ENDED, ended))
    for write in writes:
        if not write.rows:
            continue
        if isinstance(write, Added):
            parts.append((write.table, write.columns, True))
            parameters.append(recordset.encoded(recordset.columns_of(write.table, write.columns), write.rows))
        else:
            parts.append((write.table, write.key, False))
            parameters.append(recordset.changes(write.table, write.rows))
    # Raw: psycopg would look for placeholders in the long text each time.
    async with AsyncRawCursor(connection) as cursor:
        await cursor.execute(_statement(bool(ended), tuple(parts)), parameters, prepare=True)
        return {row[0] for row in await cursor.fetchall()}


@lru_cache(maxsize=256)
def _statement(ends: bool, parts: tuple[Part, ...]) -> str:
    steps = [_FENCE]
    if ends:
        steps.append(f"ended AS ({ENDING.replace('WHERE', f'WHERE {_IF_OURS} AND')})")
    for number, (table, columns, adds) in enumerate(parts):
        if adds:
            steps.append(f"write{number} AS ({_adding(table, columns, ends)})")
        else:
            steps.append(f"write{number} AS (UPDATE {recordset.update_of(table, columns)} AND {_IF_OURS})")
    return _numbered(f"WITH {', '.join(steps)} SELECT partition FROM held")


def _numbered(statement: str) -> str:
    """The statement with PostgreSQL's own placeholders."""
    pieces = statement.split("%s")
    return "".join(f"{piece}${number}" for number, piece in enumerate(pieces[:-1], 1)) + pieces[-1]


def _adding(table: Table, columns: tuple[str, ...], ends: bool) -> str:
    kinds = recordset.columns_of(table, columns)
    names = ", ".join(f'"{column}"' for column in columns)
    values = {column: recordset.value_of(column, kind) for column, kind in kinds.items()}
    source = recordset.given(kinds)
    if ends and table is tables.messages:
        # What stands at the place of a message that is ended here was said by the same run.
        values["run_id"] = "coalesce(given.run_id, ended.run_id)"
        source += " LEFT JOIN ended USING (context_id, era, position)"
    return f'INSERT INTO "{table.name}" ({names}) SELECT {", ".join(values.values())} FROM {source} WHERE {_IF_OURS}'


def _values(one: Progress) -> tuple[Any, ...]:
    return (
        one.partition,
        one.epoch,
        one.expected,
        one.next_offset,
        one.end_offset,
        one.last_offset,
        one.last_hash,
        one.last_logged_at,
        one.generation,
    )


_PROGRESS = {
    "partition": "int4",
    "epoch": "int8",
    "expected": "int8",
    "next_offset": "int8",
    "end_offset": "int8",
    "last_offset": "int8",
    "last_hash": "bytea",
    "last_logged_at": "timestamptz",
    "generation": "int4",
}

_IF_OURS = "(SELECT ours FROM fence)"

_FENCE = f"""
    mine AS MATERIALIZED (SELECT * FROM {recordset.given(_PROGRESS)}),
    held AS MATERIALIZED (
        SELECT
            p.generation, p.partition, mine.next_offset, mine.end_offset, mine.last_offset, mine.last_hash,
            mine.last_logged_at
        FROM mine
        JOIN projections AS p
            ON p.generation = mine.generation AND p.partition = mine.partition AND p.epoch = mine.epoch
            AND p.next_offset = mine.expected
        WHERE p.projection = '{PROJECTION}' AND p.topic = %s
        ORDER BY p.partition
        FOR NO KEY UPDATE OF p
    ),
    fence AS MATERIALIZED (SELECT (SELECT count(*) FROM held) = (SELECT count(*) FROM mine) AS ours),
    moved AS (
        UPDATE projections AS p SET
            next_offset = held.next_offset,
            end_offset = held.end_offset,
            last_offset = coalesce(held.last_offset, p.last_offset),
            last_hash = coalesce(held.last_hash, p.last_hash),
            last_logged_at = coalesce(held.last_logged_at, p.last_logged_at),
            idle_assignments = 0,
            updated_at = clock_timestamp()
        FROM held
        WHERE p.projection = '{PROJECTION}' AND p.topic = %s AND p.generation = held.generation
            AND p.partition = held.partition AND {_IF_OURS}
    )
"""

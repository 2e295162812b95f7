"""A whole batch as one statement: for small batches, where round trips dominate.

A single statement is a transaction, so the process cannot die between its beginning and its commit. Its effect on the
tables is that of the statements in `batch`. Like every batch it first advances the checkpoints that have the expected
epoch and offset, and does nothing if one of them does not. Whether its commit waits for the disk is a parameter.

Most of its cost is planning in the database. So it names no more columns than needed, and if every table gets one row,
which is the usual case, the values of the rows are parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from psycopg import AsyncRawCursor, DataError, errors
from sqlalchemy import Table

from frameledger_services.database_types import Connection
from frameledger_services.store import checkpoints, heads, row_parameters, tables
from frameledger_services.store.batch import ENDED, Ended, Insert, StaleHeadError, Update, ending
from frameledger_services.store.projections import Progress

Cursor = AsyncRawCursor[Any]


def cursor_of(connection: Connection) -> Cursor:
    """Returns the cursor for `store`, for as long as the connection lasts."""
    # Raw: otherwise psycopg would search the long text for placeholders each time.
    return AsyncRawCursor(connection)


async def store(
    cursor: Cursor,
    topic: str,
    batch: Sequence[Progress],
    ended: Sequence[Ended] = (),
    writes: Sequence[Insert | Update] = (),
    *,
    on_disk: bool = True,
) -> set[int]:
    """Advance the partitions of a batch and write it, all or nothing. The cursor's connection must not be in a
    transaction.

    Returns, after the commit, the partitions that are owned. If one is missing, another projector owns it, and nothing
    was written. Unless `on_disk`, a crash of the database shortly afterwards may undo all of it; the next commit of any
    session that waits for the disk flushes it too. Raises `StaleHeadError` and psycopg's errors; nothing was written
    then.
    """
    writes = [write for write in writes if write.rows]
    while True:
        try:
            return await _store(cursor, topic, batch, ended, writes, on_disk)
        except errors.DivisionByZero:
            # One of several partitions was lost, or a head has changed since it was loaded.
            held = await checkpoints.still_owned(cursor.connection, topic, batch)
            if len(held) < len(batch):
                return held
            if not await _heads_are_unchanged(cursor.connection, writes):
                raise StaleHeadError from None


async def _heads_are_unchanged(connection: Connection, writes: Sequence[Insert | Update]) -> bool:
    """Whether none of the updated heads has changed since it was loaded."""
    for write in writes:
        if isinstance(write, Update) and write.table is tables.contexts:
            loaded = {row["context_id"]: row["rebuilt"] for row in write.rows}
            return await heads.rebuilt(connection, loaded) == loaded
    return True


async def _store(
    cursor: Cursor,
    topic: str,
    batch: Sequence[Progress],
    ended: Sequence[Ended],
    writes: Sequence[Insert | Update],
    on_disk: bool,
) -> set[int]:
    if len(ended) <= 1 and all(len(write.rows) == 1 for write in writes):
        try:
            return await _execute(cursor, topic, batch, ended, writes, on_disk, single=True)
        except DataError as error:
            # Text with NUL, which psycopg does not send. Inside JSON, the database refuses it.
            if error.sqlstate is not None:
                raise
    return await _execute(cursor, topic, batch, ended, writes, on_disk, single=False)


async def _execute(
    cursor: Cursor,
    topic: str,
    batch: Sequence[Progress],
    ended: Sequence[Ended],
    writes: Sequence[Insert | Update],
    on_disk: bool,
    *,
    single: bool,
) -> set[int]:
    alone = len(batch) == 1
    parameters = checkpoints.parameters(topic, batch, single=alone)
    if not alone:
        parameters.append(str(len(batch)))
    if ended:
        parameters += row_parameters.parameters(ENDED, ended, single=single)
    steps = []
    head_write, known = None, 0
    for number, write in enumerate(writes):
        if isinstance(write, Update) and write.table is tables.contexts:
            head_write, known = number, len(write.rows)
        if isinstance(write, Insert):
            columns = row_parameters.columns_of(write.table, write.columns)
            parameters += row_parameters.parameters(columns, write.rows, single=single)
            steps.append(_adding(write.table, write.columns, inherits=bool(ended), single=single))
        elif single:
            names = tuple(write.rows[0])
            parameters += row_parameters.values(
                row_parameters.columns_of(write.table, names), write.rows[0].values()
            )
            steps.append(f"{row_parameters.update_of_single(write.table, write.key, names)} AND")
        else:
            parameters.append(row_parameters.changes(write.table, write.rows))
            steps.append(f"{write.update} AND")
    if head_write is not None:
        parameters.append(str(known))
    statement = _statement(alone, bool(ended), single, tuple(steps), head_write, on_disk)
    await cursor.execute(statement, parameters, prepare=True)
    return {row[0] for row in await cursor.fetchall()}


@lru_cache(maxsize=1_024)
def _statement(
    alone: bool, ends: bool, single: bool, writes: tuple[str, ...], head_write: int | None, on_disk: bool
) -> bytes:
    """Returns the statement that does these `writes` if the partitions are ours. Each write ends where a condition can
    follow. The write number `head_write` has to affect as many rows as the last parameter."""
    steps = f"moved AS ({checkpoints.statement(single=alone)})"
    if alone:
        ours = "EXISTS (SELECT FROM moved)"
    else:
        # All or none: if a partition is lost the division fails, and with it the statement. Locking and counting them
        # first took a quarter longer.
        steps += ", fence AS MATERIALIZED (SELECT 1 / (count(*) = %s::int8)::int4 = 1 AS ours FROM moved)"
        ours = "(SELECT ours FROM fence)"
    if ends:
        steps += f", ended AS ({ending(single=single).replace('WHERE', f'WHERE {ours} AND')})"
    for number, write in enumerate(writes):
        answer = " RETURNING 1" if number == head_write else ""
        steps += f", write{number} AS ({write} {ours}{answer})"
    if head_write is not None:
        # Only if the partitions are ours: otherwise no row is affected.
        met = f"(SELECT 1 / (count(*) = %s::int8)::int4 = 1 FROM write{head_write})"
        ours = f"CASE WHEN {ours} THEN {met} ELSE false END"
    if not on_disk:
        # For this transaction only.
        ours += " AND set_config('synchronous_commit', 'off', true) = 'off'"
    return _numbered(f"WITH {steps} SELECT partition FROM moved WHERE {ours}")


def _numbered(statement: str) -> bytes:
    """Returns the statement with PostgreSQL's own placeholders. As bytes, whose hash Python keeps: psycopg looks it up
    among the prepared statements by it, and would encode and hash the long text each time."""
    pieces = statement.split("%s")
    return ("".join(f"{piece}${number}" for number, piece in enumerate(pieces[:-1], 1)) + pieces[-1]).encode()


@lru_cache(maxsize=256)
def _adding(table: Table, columns: tuple[str, ...], *, inherits: bool, single: bool) -> str:
    kinds = row_parameters.columns_of(table, columns)
    names = ", ".join(f'"{column}"' for column in columns)
    values = {column: row_parameters.value_of(column, kind) for column, kind in kinds.items()}
    source = row_parameters.from_item(kinds, single=single)
    if inherits and table is tables.messages:
        # A message that replaces one that is ended here belongs to the same run.
        values["run_id"] = "coalesce(given.run_id, ended.run_id)"
        source += " LEFT JOIN ended USING (context_id, era, position)"
    return f'INSERT INTO "{table.name}" ({names}) SELECT {", ".join(values.values())} FROM {source} WHERE'

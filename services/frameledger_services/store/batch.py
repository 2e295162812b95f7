"""The statements of a batch: each function runs one, in the caller's transaction, and none commits."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from psycopg import AsyncConnection
from sqlalchemy import Table

from frameledger_services.store import recordset, tables
from frameledger_services.store.copying import copy_in

Connection = AsyncConnection[Any]
Row = dict[str, Any]


async def insert(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Add rows that may leave columns out; those that none of them has get their default."""
    if rows:
        columns = [column.name for column in table.columns if any(column.name in row for row in rows)]
        defaults = {column: _default(table, column) for column in columns}
        await copy_in(
            connection,
            table,
            columns,
            ([row.get(column, defaults[column]) for column in columns] for row in rows),
        )


async def end_messages(
    connection: Connection, ended: Sequence[tuple[str, int, int, int]]
) -> dict[tuple[str, int, int], str | None]:
    """End the validity of messages, given as context, era, position and version; the run that said each."""
    if not ended:
        return {}
    cursor = await connection.execute(
        """
        UPDATE messages SET valid_to = ended.version
        FROM unnest(%s::text[], %s::int[], %s::int[], %s::bigint[]) AS ended (context_id, era, position, version)
        WHERE messages.context_id = ended.context_id AND messages.era = ended.era
            AND messages.position = ended.position AND messages.valid_to = %s
        RETURNING messages.context_id, messages.era, messages.position, messages.run_id
        """,
        (*map(list, zip(*ended, strict=True)), tables.FOR_EVER),
    )
    return {(row[0], row[1], row[2]): row[3] for row in await cursor.fetchall()}


async def patch(connection: Connection, table: Table, key: Sequence[str], rows: Iterable[Row]) -> None:
    """Change columns of rows that are there: each row has the key's columns and those that change.

    One statement for each set of columns that change together, of which there are few.
    """
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        changed = tuple(sorted(column for column in row if column not in key))
        if changed:
            alike.setdefault(changed, []).append(row)
    for changed, group in alike.items():
        await _update(connection, table, key, changed, group)


async def _update(
    connection: Connection, table: Table, key: Sequence[str], changed: Sequence[str], rows: Sequence[Row]
) -> None:
    columns = (*key, *changed)
    values = ([row[column] for column in columns] for row in rows)
    await connection.execute(
        _update_of(table, tuple(key), changed), (recordset.encoded(table, columns, values),)
    )


_COUNTED = {"progress_count"}
"""Columns of which a change says by how much."""


@lru_cache(maxsize=1_024)
def _update_of(table: Table, key: tuple[str, ...], changed: tuple[str, ...]) -> str:
    assignments = ", ".join(
        f'"{column}" = '
        + (f'"{table.name}"."{column}" + ' if column in _COUNTED else "")
        + recordset.value_of(table, column)
        for column in changed
    )
    same = " AND ".join(f'"{table.name}"."{column}" = given."{column}"' for column in key)
    return f'UPDATE "{table.name}" SET {assignments} FROM {recordset.given(table, (*key, *changed))} WHERE {same}'


async def delete_outbox(connection: Connection, places: Sequence[tuple[str, int, int, int]]) -> None:
    """Remove what is on Kafka by now, given as topic, partition, offset and ordinal."""
    await connection.execute(
        """
        DELETE FROM outbox USING unnest(%s::text[], %s::int[], %s::bigint[], %s::int[])
            AS sent (topic, partition, "offset", ordinal)
        WHERE outbox.topic = sent.topic AND outbox.partition = sent.partition
            AND outbox."offset" = sent."offset" AND outbox.ordinal = sent.ordinal
        """,
        tuple(map(list, zip(*places, strict=True))),
    )


async def keep_unsendable(
    connection: Connection,
    rows: Sequence[tuple[str, int, int, str | None, bytes | None, bytes | None]],
) -> None:
    """Keep what no topic takes, given as topic, partition, offset, context, key and value; a dead letter is there
    already."""
    await connection.execute(
        """
        INSERT INTO rejected_frames (topic, partition, "offset", code, error, context_id, key, value)
        SELECT topic, partition, "offset", 'too_large', 'the topic that it was to be copied to does not take so much',
            context_id, key, value
        FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::text[], %s::bytea[], %s::bytea[])
            AS refused (topic, partition, "offset", context_id, key, value)
        ON CONFLICT DO NOTHING
        """,
        tuple(map(list, zip(*rows, strict=True))),
    )


def headers_as_json(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Record headers as `outbox` and `rejected_frames` keep them."""
    return json.dumps([[name, _header_value(value)] for name, value in headers]).encode()


def headers_from_json(kept: Sequence[Sequence[Any]]) -> tuple[tuple[str, bytes | None], ...]:
    """What `headers_as_json` wrote, as the driver reads it."""
    return tuple((name, _header_bytes(value)) for name, value in kept)


def _header_value(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode("ascii")}
    return text if "\x00" not in text else {"base64": b64encode(value).decode("ascii")}


def _header_bytes(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return None if value is None else str(value).encode()


def _default(table: Table, column: str) -> Any:
    """What a row without the column has: its server default, read as the value that it is."""
    default = table.c[column].server_default
    if default is None:
        return None
    text = str(getattr(default, "arg", ""))
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text.strip("'").encode()

"""What a batch does to the tables, as data, and how each of it is written by itself; the outbox's statements.

All of a small batch is written at once, by `together`. No function here commits.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from sqlalchemy import Table

from frameledger.errors import NotFoundError
from frameledger_services.store import recordset, tables
from frameledger_services.store.copying import copy_in

Connection = AsyncConnection[Any]
Row = dict[str, Any]
Ended = tuple[str, int, int, int]
"""A message that is valid no longer: its context, era and position, and the version that ended it."""


@dataclass(frozen=True, slots=True)
class Added:
    """Rows to be added, given as values in the order of `columns`; JSON as bytes of its text."""

    table: Table
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows to be changed: each has the columns of the key, and those that change in it."""

    table: Table
    key: tuple[str, ...]
    rows: Sequence[Row]
    usual: frozenset[str] = frozenset()
    """Columns that change in nearly every row; the statement is shorter as long as they do in all."""

    @property
    def update(self) -> str:
        """The statement that changes the rows, which `recordset.changes` makes its parameter."""
        always = self.usual if all(self.usual <= row.keys() for row in self.rows) else frozenset()
        least = len(self.key) + len(always)
        others = any(len(row) > least for row in self.rows)
        return recordset.update_of(self.table, self.key, always, others=others)


def added(table: Table, rows: Sequence[Row]) -> Added:
    """Rows that may leave columns out; those that none of them has get their default."""
    named = set().union(*rows)
    columns = tuple(str(column.name) for column in table.columns if column.name in named) if rows else ()
    defaults = {column: _default(table, column) for column in columns}
    return Added(table, columns, [[row.get(column, defaults[column]) for column in columns] for row in rows])


async def add(connection: Connection, rows: Added) -> None:
    """Add rows, by COPY. Raises psycopg's errors; `UniqueViolation` for a row that is there."""
    if rows.rows:
        await copy_in(connection, rows.table, rows.columns, rows.rows)


class MissingHeadError(NotFoundError):
    """A conversation that a batch goes on with is not in the database any more: it was erased.

    Remedy: None is needed: the projector drops what it has in memory and begins again.
    """


async def change(connection: Connection, rows: Changed) -> None:
    """Change rows, in one statement. One that is not there is none; `MissingHeadError` if it is a conversation."""
    if rows.rows:
        cursor = await connection.execute(rows.update, (recordset.changes(rows.table, rows.rows),))
        if rows.table is tables.contexts and cursor.rowcount < len(rows.rows):
            raise MissingHeadError


async def end_messages(
    connection: Connection, ended: Sequence[Ended]
) -> dict[tuple[str, int, int], str | None]:
    """End the validity of messages; the run that said each, by context, era and position."""
    if not ended:
        return {}
    cursor = await connection.execute(ending(), recordset.parameters(ENDED, ended))
    return {(row[0], row[1], row[2]): row[3] for row in await cursor.fetchall()}


ENDED = {"context_id": "text", "era": "int4", "position": "int4", "version": "int8"}


def ending(*, single: bool = False) -> str:
    """The statement that ends the validity of messages, and says which run said them."""
    return f"""
        UPDATE messages SET valid_to = given.version
        FROM {recordset.given(ENDED, single=single)}
        WHERE messages.context_id = given.context_id AND messages.era = given.era
            AND messages.position = given.position AND messages.valid_to = {tables.FOR_EVER}
        RETURNING messages.context_id, messages.era, messages.position, messages.run_id
    """


async def delete_outbox(connection: Connection, places: Sequence[tuple[str, int, int, int, int]]) -> None:
    """Remove what is on Kafka by now, given as topic, partition, generation, offset and ordinal."""
    await connection.execute(
        """
        DELETE FROM outbox USING unnest(%s::text[], %s::int[], %s::int[], %s::bigint[], %s::int[])
            AS sent (topic, partition, generation, "offset", ordinal)
        WHERE outbox.topic = sent.topic AND outbox.partition = sent.partition
            AND outbox.generation = sent.generation
            AND outbox."offset" = sent."offset" AND outbox.ordinal = sent.ordinal
        """,
        tuple(map(list, zip(*places, strict=True))),
    )


async def read_outbox(
    connection: Connection, places: Sequence[tuple[str, int, int, int, int]]
) -> list[tuple[Any, ...]]:
    """Those of these rows that are still there, in the order of their places as given: topic, partition, generation,
    offset, ordinal, kind, to_topic, context_id, key, value and headers."""
    cursor = await connection.execute(
        """
        SELECT topic, partition, generation, "offset", ordinal, kind, to_topic, context_id, key, value, headers
        FROM unnest(%s::text[], %s::int[], %s::int[], %s::bigint[], %s::int[])
            WITH ORDINALITY AS asked (topic, partition, generation, "offset", ordinal, number)
        JOIN outbox USING (topic, partition, generation, "offset", ordinal)
        ORDER BY number
        """,
        tuple(map(list, zip(*places, strict=True))),
    )
    return await cursor.fetchall()


async def keep_unsendable(
    connection: Connection,
    rows: Sequence[tuple[str, int, int, int, str | None, bytes | None, bytes | None, bytes]],
) -> None:
    """Keep what no topic takes, given as topic, partition, generation, offset, context, key, value and headers (as
    `headers_as_json` makes them); a dead letter is there already."""
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

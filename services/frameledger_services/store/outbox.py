"""The rows of `outbox`, and the statements on them. No function here commits."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from psycopg import AsyncConnection

Connection = AsyncConnection[Any]

OutboxPlace = tuple[str, int, int, int, int]
"""Topic, partition, generation, offset and ordinal: the primary key of `outbox`."""


@dataclass(slots=True)
class OutboxRow:
    """A row of `outbox`: something to be published, in the place of what caused it."""

    topic: str
    partition: int
    generation: int
    offset: int
    ordinal: int
    kind: str
    to_topic: str
    context_id: str | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def place(self) -> OutboxPlace:
        """Its primary key."""
        return self.topic, self.partition, self.generation, self.offset, self.ordinal

    def values(self) -> list[Any]:
        """Returns the values of `COLUMNS`."""
        return [*_all_but_headers(self), headers_as_json(self.headers)]


COLUMNS = tuple(OutboxRow.__dataclass_fields__)

_COLUMNS = ", ".join(f'"{column}"' for column in COLUMNS)
_all_but_headers = attrgetter(*COLUMNS[:-1])


async def delete(connection: Connection, places: Sequence[OutboxPlace]) -> None:
    """Delete rows that are published."""
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


async def read(connection: Connection, places: Sequence[OutboxPlace]) -> list[OutboxRow]:
    """Returns the rows at these places that are still there, in the order given."""
    cursor = await connection.execute(
        f"""
        SELECT {_COLUMNS}
        FROM unnest(%s::text[], %s::int[], %s::int[], %s::bigint[], %s::int[])
            WITH ORDINALITY AS asked (topic, partition, generation, "offset", ordinal, number)
        JOIN outbox USING (topic, partition, generation, "offset", ordinal)
        ORDER BY number
        """,
        tuple(map(list, zip(*places, strict=True))),
    )
    return [_row(row) for row in await cursor.fetchall()]


async def left_behind(connection: Connection, topic: str, partitions: Sequence[int]) -> list[OutboxRow]:
    """Returns the rows that a former owner of these partitions did not delete, in the order of their causes, also those
    of sealed generations."""
    cursor = await connection.execute(
        f"""
        SELECT {_COLUMNS}
        FROM outbox
        WHERE topic = %s AND partition = ANY (%s)
        ORDER BY partition, generation, "offset", ordinal
        """,
        (topic, list(partitions)),
    )
    return [_row(row) for row in await cursor.fetchall()]


def _row(values: Sequence[Any]) -> OutboxRow:
    return OutboxRow(**dict(zip(COLUMNS, values, strict=True)) | {"headers": headers_from_json(values[-1])})


def headers_as_json(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Returns record headers as `outbox` and `rejected_frames` store them."""
    return json.dumps([[name, _header_value(value)] for name, value in headers]).encode()


def headers_from_json(kept: Sequence[Sequence[Any]]) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the headers that `headers_as_json` wrote, from what the driver reads."""
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

"""Advancing the checkpoints of partitions: one statement that locks their rows, checks their owner, and advances them.

For a projector that was fenced the row has another epoch or offset, and is not advanced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

from frameledger_services.database_types import Connection
from frameledger_services.store import row_parameters
from frameledger_services.store.projections import PROJECTION, Progress

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

_values = attrgetter(*_PROGRESS)
_partition = attrgetter("partition")

_EXPECTED = f"""
    p.projection = '{PROJECTION}' AND p.topic = %s AND p.generation = given.generation
    AND p.partition = given.partition AND p.epoch = given.epoch AND p.next_offset = given.expected
"""


async def advance(connection: Connection, topic: str, batch: Sequence[Progress]) -> set[int]:
    """Advance the partitions of a batch, in the caller's transaction, which locks them from here on. Returns the
    advanced ones. A missing partition has another owner: this projector is fenced, and has to roll back.
    """
    cursor = await connection.execute(statement(single=False), parameters(topic, batch, single=False))
    return {row[0] for row in await cursor.fetchall()}


async def still_owned(connection: Connection, topic: str, batch: Sequence[Progress]) -> set[int]:
    """Returns the partitions of a batch that are in the expected state. A missing partition never will be again,
    because epochs and offsets only increase."""
    cursor = await connection.execute(
        f"SELECT p.partition FROM {row_parameters.from_item(_PROGRESS)} JOIN projections AS p ON {_EXPECTED}",
        parameters(topic, batch, single=False),
    )
    return {row[0] for row in await cursor.fetchall()}


@lru_cache(maxsize=2)
def statement(*, single: bool) -> str:
    """Returns the statement that advances the partitions that are in the expected state, and returns them. A row for
    which it had to wait is checked again."""
    return f"""
        UPDATE projections AS p SET
            next_offset = given.next_offset,
            end_offset = given.end_offset,
            last_offset = coalesce(given.last_offset, p.last_offset),
            last_hash = coalesce(given.last_hash, p.last_hash),
            last_logged_at = coalesce(given.last_logged_at, p.last_logged_at),
            attempt = NULL, crashes = 0, crashes_alone = 0,
            updated_at = clock_timestamp()
        FROM {row_parameters.from_item(_PROGRESS, single=single)}
        WHERE {_EXPECTED}
        RETURNING p.partition
    """


def parameters(topic: str, batch: Sequence[Progress], *, single: bool) -> list[str | None]:
    """Returns the parameters of `statement`."""
    # In the order in which `recovery.seal` locks them, so that the two do not deadlock.
    rows = [_values(one) for one in sorted(batch, key=_partition)]
    return [*row_parameters.parameters(_PROGRESS, rows, single=single), topic]

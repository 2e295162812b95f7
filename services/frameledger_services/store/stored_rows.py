"""All rows of conversations in the order of versions, for folding them again.

Short conversations are read whole, many with one statement for each table. A long one is read as far as the caller
needs, and the server keeps its rows sorted meanwhile. All functions read in the caller's transaction, which has to be
REPEATABLE READ so that all rows are from one snapshot. None returns what a conversation had up to the version `after`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Table

from frameledger_services.database_types import Connection
from frameledger_services.store import tables
from frameledger_services.store.binary_copy import type_name
from frameledger_services.store.frame_pages import PAGE_BYTES, FramePages, selected
from frameledger_services.store.rows_by_version import Row, RowsByVersion, RowsInMemory, ServerRows
from frameledger_services.store.valid_to import FOR_EVER

WHATEVER_VERSION = -(2**63)
"""Instead of a version after which rows are read: all rows, including those of versions that their conversation does
not have."""


class StoredFrameRow(NamedTuple):
    """A row of `frames`, without its place on the log. The fields after `frame_id` are derived from the payload and
    from the frames before it."""

    version: int
    logged_at: datetime
    source: str | None
    payload: bytes
    chain: bytes
    frame_id: str
    """Its uuid, as text."""

    produced_at: datetime | None
    type: str
    outcome: str
    reason: str | None
    run_id: str | None
    tool_call_id: str | None


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What is folded from the frames of one conversation. After its first column each row has the columns of its
    table."""

    begun: RowsByVersion
    """Rows of `messages`, by `valid_from`."""

    ended: RowsByVersion
    """Rows of `messages` that have an end, by `valid_to`: `Ended`."""

    eras: RowsByVersion
    """By `valid_from`."""

    settings: RowsByVersion
    """Rows of `context_settings`, by `valid_from`."""

    runs: RowsByVersion
    """Rows of `runs`, by `requested_version`."""

    calls: RowsByVersion
    """Rows of `tool_calls`, by `requested_version`."""

    async def close(self) -> None:
        """Stop reading."""
        for rows in (self.begun, self.ended, self.eras, self.settings, self.runs, self.calls):
            await rows.close()


@dataclass(frozen=True, slots=True)
class Short:
    """A conversation that was read as a whole: its frames and its rows."""

    frames: Sequence[StoredFrameRow]
    rows: StoredRows


async def heads(connection: Connection, context_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Returns the rows of `contexts` that exist: values by column, the state as text."""
    columns = names(tables.contexts)
    cursor = await connection.execute(
        f"SELECT {_listed(tables.contexts)} FROM contexts WHERE context_id = ANY (%s)", (list(context_ids),)
    )
    return {row[0]: dict(zip(columns, row, strict=True)) for row in await cursor.fetchall()}


def frames(
    connection: Connection, context_id: str, *, after: int = 0, upto: int = FOR_EVER
) -> AsyncGenerator[list[StoredFrameRow], None]:
    """Yields the frames of a conversation, in order, in pages of bounded size."""
    return _FRAMES.pages(connection, context_id, after=after, upto=upto)


_FRAME_COLUMNS = tuple("frame_id::text" if name == "frame_id" else name for name in StoredFrameRow._fields)
_FRAMES = FramePages(StoredFrameRow._make, _FRAME_COLUMNS)


class Behind(NamedTuple):
    """The versions after which a conversation is read."""

    frames: int
    rows: int


async def short(
    connection: Connection, after: Mapping[str, Behind]
) -> AsyncGenerator[tuple[str, Short], None]:
    """Yields conversations with all their frames and rows after the version given for each. As many as fit into
    `PAGE_BYTES` of payloads are read together, with one statement for each table. The caller knows from their heads
    that they are short.

    A conversation whose payloads do not fit by themselves is omitted: read it with `frames` and `rows`.
    """
    waiting, together = dict(after), len(after)
    while waiting:
        group = dict(islice(waiting.items(), together))
        by_context = await _read_together(connection, group)
        for context_id, conversation in by_context.items():
            yield context_id, conversation
        for context_id in by_context if len(group) > 1 else group:
            del waiting[context_id]
        together = max(1, 2 * len(by_context))


async def _read_together(connection: Connection, after: Mapping[str, Behind]) -> dict[str, Short]:
    """Returns the first of these conversations, as many as fit."""
    ids = list(after)
    parameters = {"ids": ids, "after": [one.rows for one in after.values()]}
    by_context: dict[str, list[StoredFrameRow]] = {context_id: [] for context_id in after}
    async with connection.cursor(binary=True) as cursor:
        behind = [one.frames for one in after.values()]
        await cursor.execute(_SHORT_FRAMES, {"ids": ids, "after": behind, "most": PAGE_BYTES})
        for row in await cursor.fetchall():
            if row[_IS_CUT]:
                by_context.pop(row[0], None)
            elif (of_conversation := by_context.get(row[0])) is not None:
                of_conversation.append(StoredFrameRow._make(row[2:]))
    parts: list[dict[str, list[Row]]] = []
    for statement in _SHORT_ROWS:
        of_table: dict[str, list[Row]] = {context_id: [] for context_id in after}
        for row in await (await connection.execute(statement, parameters, binary=True)).fetchall():
            of_table[row[0]].append(row[1:])
        parts.append(of_table)
    return {
        context_id: Short(frames, StoredRows(*(RowsInMemory(part[context_id]) for part in parts)))
        for context_id, frames in by_context.items()
    }


_IS_CUT = 1
_SHORT_FRAMES = f"""
    SELECT
        context_id, bytes > %(most)s,
        {selected(_FRAME_COLUMNS, "CASE WHEN bytes <= %(most)s THEN convert_to(text, 'UTF8') END")}
    FROM (
        SELECT *, sum(octet_length(text)) OVER (ORDER BY context_id, version) AS bytes
        FROM (
            SELECT frames.*, frames.payload::text AS text
            FROM unnest(%(ids)s::text[], %(after)s::bigint[]) AS asked (context_id, after)
            INNER JOIN frames ON frames.context_id = asked.context_id AND frames.version > asked.after
        ) AS next
    ) AS counted
    ORDER BY context_id, version
"""


def rows(connection: Connection, context_id: str, *, after: int = WHATEVER_VERSION) -> StoredRows:
    """Returns the rows of a conversation of any length, to be read as far as needed."""
    return StoredRows(
        *(
            ServerRows(connection, f"by_version_{number}", statement, {"id": context_id, "after": after})
            for number, statement in enumerate(_ROWS)
        )
    )


@cache
def names(table: Table) -> tuple[str, ...]:
    """Returns the columns of a table, in order."""
    return tuple(str(column.name) for column in table.columns)


@cache
def json_columns(table: Table) -> frozenset[str]:
    """Returns the columns whose values are read as JSON text."""
    return frozenset(name for name in names(table) if type_name(table, name) == "json")


def _listed(table: Table) -> str:
    as_text = json_columns(table)
    return ", ".join(
        f'{table.name}."{name}"::text' if name in as_text else f'{table.name}."{name}"'
        for name in names(table)
    )


class Ended(NamedTuple):
    """A message that has an end."""

    valid_to: int
    era: int
    position: int
    valid_from: int
    run_id: str | None
    role: str | None
    calls: bool | None
    """Whether it calls functions; None if it is not a message of the assistant."""


_ENDED = "era, position, valid_from, run_id, role, CASE WHEN role = 'assistant' THEN makes_calls(message) END"

_RUN_CHANGED = (
    "runs.closed_version IS NULL OR greatest(runs.opened_version, runs.started_version, runs.closed_version)"
)
_CALL_CHANGED = (
    "tool_calls.settled_version IS NULL OR greatest(tool_calls.dispatched_version, tool_calls.started_version, "
    "tool_calls.interrupted_version, tool_calls.settled_version, tool_calls.resolved_version)"
)
"""SQL: runs and calls that started earlier and may have changed since."""

# In the order of the fields of `StoredRows`: the table, its version, its columns, and the order of rows with the same
# version.
_PARTS: tuple[tuple[Table, str, str, str], ...] = (
    (tables.messages, "valid_from", _listed(tables.messages), "era, position"),
    (tables.messages, "valid_to", _ENDED, "era, position"),
    (tables.eras, "valid_from", _listed(tables.eras), "era"),
    (tables.context_settings, "valid_from", _listed(tables.context_settings), "name"),
    (tables.runs, "requested_version", _listed(tables.runs), "run_id"),
    (tables.tool_calls, "requested_version", _listed(tables.tool_calls), "ordinal"),
)


def _statements(*, many: bool) -> Iterable[str]:
    changed = {"runs": _RUN_CHANGED, "tool_calls": _CALL_CHANGED}
    after = "asked.after" if many else "%(after)s"
    for table, version, columns, order in _PARTS:
        name = str(table.name)
        behind = f"{name}.{version} > {after}"
        if name in changed:
            behind = f"({behind} OR {changed[name]} > {after})"
        if version == "valid_to":
            behind += f" AND {name}.valid_to < {FOR_EVER}"
        if many:
            yield f"""
                SELECT {name}.context_id, {name}.{version}, {columns}
                FROM unnest(%(ids)s::text[], %(after)s::bigint[]) AS asked (context_id, after)
                INNER JOIN {name} ON {name}.context_id = asked.context_id AND {behind}
                ORDER BY {name}.context_id, {name}.{version}, {order}
            """
        else:
            yield f"""
                SELECT {name}.{version}, {columns}
                FROM {name}
                WHERE {name}.context_id = %(id)s AND {behind}
                ORDER BY {name}.{version}, {order}
            """


_ROWS = tuple(_statements(many=False))
_SHORT_ROWS = tuple(_statements(many=True))

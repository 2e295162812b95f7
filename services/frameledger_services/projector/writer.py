"""Writes the rows and heads of a batch, with one statement per table or one for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any

from frameledger_services.database_types import Connection
from frameledger_services.projector.head import Head
from frameledger_services.projector.head_rows import head_writes
from frameledger_services.projector.rows import FrameRow, MessageRow, Rows
from frameledger_services.store import batch as statements
from frameledger_services.store import erasures, heads, outbox, single_statement, tables
from frameledger_services.store.batch import Insert, Update
from frameledger_services.store.projections import Progress
from frameledger_services.store.record_headers import headers_as_json
from frameledger_services.store.staged_rows import STAGED

_FRAMES = FrameRow._fields
_MESSAGES = tuple(name for name in MessageRow.__dataclass_fields__ if name != "inherits")
_REJECTED = (
    "topic",
    "partition",
    "generation",
    "offset",
    "logged_at",
    "code",
    "error",
    "context_id",
    "key",
    "value",
    "headers",
)

_values_of_message = attrgetter(*_MESSAGES)


async def write(connection: Connection, rows: Rows, changed: Iterable[Head], *, by_copy: bool = True) -> None:
    """Write a batch in the caller's transaction: the fastest way for many rows. Without `by_copy`, PostgreSQL can
    finish each statement by itself (`store.batch.insert_values`).

    Raises `StaleHeadError` and psycopg's errors; the transaction has to be rolled back then.
    """
    # First, because a rebuild also locks a conversation's head before its other rows: the two never deadlock.
    for statement in head_writes(changed):
        await _execute(connection, statement, by_copy=by_copy)
    run_ids = await statements.end_messages(connection, rows.ended)
    messages = rows.messages()
    _inherit(messages, run_ids)
    for statement in _writes(rows, messages):
        await _execute(connection, statement, by_copy=by_copy)


async def stage(connection: Connection, rows: Rows) -> None:
    """Write rows without their heads into the temporary tables of the caller's transaction (`staged_rows`)."""
    run_ids = await statements.end_messages(connection, rows.ended, STAGED[tables.messages])
    messages = rows.messages()
    _inherit(messages, run_ids)
    for statement in _writes(rows, messages):
        await _execute(connection, replace(statement, table=STAGED[statement.table]), by_copy=False)


async def write_parts(connection: Connection, parts: Sequence[Rows], changed: Iterable[Head]) -> None:
    """Write a batch in the caller's transaction in which conversations may be erased: the rows before an erasure, then
    the deletion, which includes some of these rows, then the rows after it.

    Raises `StaleHeadError` and psycopg's errors; the transaction has to be rolled back then.
    """
    *before, last = parts
    if before:
        changed = list(changed)
        # All heads first, as above.
        erased = [context_id for part in before for context_id in part.erasures]
        await heads.lock(connection, [*erased, *(head.context_id for head in changed)])
    for part in before:
        await write(connection, part, ())
        await erasures.erase(connection, part.erasures.values())
    await write(connection, last, changed)
    for part in parts:
        await erasures.count_late(connection, part.late)


def _inherit(messages: Iterable[MessageRow], run_ids: Mapping[tuple[str, int, int], str | None]) -> None:
    """Give a message that replaces another one the run of that message."""
    for row in messages:
        if row.inherits:
            row.run_id = run_ids.get((row.context_id, row.era, row.position))


async def _execute(connection: Connection, statement: Insert | Update, *, by_copy: bool) -> None:
    if isinstance(statement, Update):
        await statements.update(connection, statement)
    elif by_copy:
        await statements.insert(connection, statement)
    else:
        await statements.insert_values(connection, statement)


async def write_single_statement(
    cursor: single_statement.Cursor,
    topic: str,
    progress: Sequence[Progress],
    rows: Rows,
    changed: Iterable[Head],
) -> set[int]:
    """Write a batch and advance its partitions, in one statement that commits: the fastest way for few rows.

    Returns the partitions that are still ours; if one is missing, nothing was written. If a call starts, the batch is
    on disk on return; see `commits`.
    """
    # The statement itself changes the heads first, since its answer depends on them.
    writes = [*_writes(rows, rows.messages()), *head_writes(changed)]
    on_disk = any("worker" in row for row in chain(rows.new_calls.values(), rows.call_patches.values()))
    return await single_statement.store(cursor, topic, progress, rows.ended, writes, on_disk=on_disk)


def _writes(rows: Rows, messages: Sequence[MessageRow]) -> Iterator[Insert | Update]:
    """Yields all writes except those of heads, in an order in which concurrent batches do not deadlock. Messages are
    ended before."""
    # Each is checked: a small batch has few of them.
    if rows.frames:
        yield Insert(tables.frames, _FRAMES, rows.frames)
    if messages:
        yield Insert(tables.messages, _MESSAGES, [_values_of_message(row) for row in messages])
    if rows.eras:
        yield Insert(tables.eras, ("context_id", "valid_from", "era"), rows.eras)
    if rows.settings:
        settings = [(*key, value) for key, value in rows.settings.items()]
        yield Insert(tables.context_settings, ("context_id", "name", "valid_from", "value"), settings)
    if rows.new_runs:
        yield statements.insert_of(tables.runs, list(rows.new_runs.values()))
    if rows.new_calls:
        yield statements.insert_of(tables.tool_calls, list(rows.new_calls.values()))
    if rows.run_patches:
        yield _changed(tables.runs, ("context_id", "run_id"), rows.run_patches)
    if rows.call_patches:
        yield _changed(tables.tool_calls, ("context_id", "requested_version", "ordinal"), rows.call_patches)
    if rows.rejections:
        yield Insert(tables.rejected_frames, _REJECTED, list(_rejected(rows)))
    if rows.outbox:
        yield Insert(tables.outbox, outbox.COLUMNS, [row.values() for row in rows.outbox])


def _changed(table: Any, key: tuple[str, ...], patches: dict[Any, dict[str, Any]]) -> Update:
    return Update(
        table,
        key,
        [dict(zip(key, place, strict=True)) | changed for place, changed in patches.items() if changed],
    )


def _rejected(rows: Rows) -> Iterator[tuple[Any, ...]]:
    for rejection in rows.rejections:
        record = rejection.record
        yield (
            record.topic,
            record.partition,
            record.generation,
            record.offset,
            rejection.logged_at,
            rejection.code,
            rejection.error,
            rejection.context_id,
            record.key,
            record.value,
            headers_as_json(record.headers),
        )

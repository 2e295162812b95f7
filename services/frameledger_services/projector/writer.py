"""Writes the rows and heads of a batch, with one statement per table or one for all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import Any

import orjson

from frameledger import stored
from frameledger.evolve.state import State
from frameledger.ids import ContextId
from frameledger_services.database_types import Connection
from frameledger_services.projector.head import Head, open_text
from frameledger_services.projector.rows import FrameRow, MessageRow, Rows
from frameledger_services.store import batch as statements
from frameledger_services.store import erasures, heads, outbox, single_statement, tables
from frameledger_services.store.batch import Insert, Update
from frameledger_services.store.projections import Progress
from frameledger_services.store.record_headers import headers_as_json
from frameledger_services.store.staged_rows import STAGED

STATE_EVERY_FRAMES = 16
"""Frames after which a state is stored again. Later ones are folded again when the head is loaded. Storing the state
with every batch took a tenth of the time of a small batch."""

SMALL_TEXT = 4_096
"""A state with more characters of open text is stored when the text has doubled, and after one frame per
`CHARACTERS_PER_FRAME` of them. This bounds both the cost of a frame and the number of frames that are folded again."""

CHARACTERS_PER_FRAME = 64

UNSAVED_BYTES = 64 * 1024
"""A state is also stored when the frames since then have this many bytes, as with images, or as many as the stored
state. A batch may load thousands of heads, and the frames of all of them at once."""

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

_values_of_head = attrgetter(*heads.ATTRIBUTES.values())

_values_of_message = attrgetter(*_MESSAGES)


async def write(connection: Connection, rows: Rows, changed: Iterable[Head], *, by_copy: bool = True) -> None:
    """Write a batch in the caller's transaction: the fastest way for many rows. Without `by_copy`, PostgreSQL can
    finish each statement by itself (`store.batch.insert_values`).

    Raises `StaleHeadError` and psycopg's errors; the transaction has to be rolled back then.
    """
    # First, because a rebuild also locks a conversation's head before its other rows: the two never deadlock.
    for statement in _head_writes(changed):
        await _execute(connection, statement, by_copy=by_copy)
    run_ids = await statements.end_messages(connection, rows.ended)
    messages = rows.messages()
    _inherit(messages, run_ids)
    for statement in _writes(rows, messages):
        await _execute(connection, statement, by_copy=by_copy)


async def stage(connection: Connection, rows: Rows) -> None:
    """Write rows that were folded again into the temporary tables of the caller's transaction (`staged_rows`)."""
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
    writes = [*_writes(rows, rows.messages()), *_head_writes(changed)]
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


def _head_writes(changed: Iterable[Head]) -> Iterator[Insert | Update]:
    new: list[dict[str, Any]] = []
    known: list[dict[str, Any]] = []
    for head in changed:
        (known if head.stored else new).append(_head_row(head))
    if new:
        yield statements.insert_of(tables.contexts, new)
    if known:
        # With another `rebuilt` in the table there is no such row.
        yield Update(tables.contexts, ("context_id", "rebuilt"), known, usual=_HEAD)


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


def _head_row(head: Head) -> dict[str, Any]:
    state = head.state
    row: dict[str, Any] = dict(zip(heads.ATTRIBUTES, _values_of_head(head), strict=True))
    row["context_id"], row["rebuilt"] = head.context_id, head.rebuilt
    if head.parked_version is None or not head.stored:
        # These do not change while it is parked, and a head that could not be brought up to date has old values.
        row |= state_columns(state)
    if head.parked_at is not None:
        # Only if it was parked since it was loaded.
        row |= {
            "parked_version": head.parked_version,
            "parked_at": head.parked_at,
            "parked_error": head.parked_error,
        }
    if head.origin is not None:
        row["origin"], head.origin = head.origin, None
    if head.experiment is not None:
        row["experiment"], head.experiment = head.experiment, None
    text = open_text(state)
    if _is_due(head, text):
        dumped = stored.dump(state)
        head.saved_text, head.saved_version, head.state_bytes = text, int(state.version), len(dumped)
        head.unsaved_bytes = 0
        row |= {
            "state_version": state.version,
            "fold_version": stored.FOLD_VERSION,
            "state": dumped,
        }
        if head.folded_by is not None:
            row["folded_by"] = orjson.dumps(head.folded_by)
    return row


def state_columns(state: State) -> dict[str, Any]:
    """The columns of `contexts` that are written from the state and not read again."""
    turn, run = state.turn, state.runs.open
    return {
        "era": state.place.era,
        "recording": state.terms.recording,
        "ended": state.terms.ended,
        "open_run_id": None if run is None else run.run_id,
        "turn_opened_version": None if turn is None else turn.opened_version,
        "turn_waits": None if turn is None else not turn.speaking,
        "bot_since_version": state.speech.bot_since,
    }


_HEAD = frozenset({*heads.ATTRIBUTES, *state_columns(State(ContextId("")))})
"""The columns of `contexts` that every batch writes for each changed head, unless it is parked."""


def _is_due(head: Head, text: int) -> bool:
    """Whether the state is due to be stored again, given the length of its open text."""
    if head.saved_version is None or head.unsaved_bytes >= max(UNSAVED_BYTES, head.state_bytes):
        return True
    frames = head.state.version - head.saved_version
    if text <= SMALL_TEXT:
        return head.saved_text > SMALL_TEXT or frames >= STATE_EVERY_FRAMES
    return text >= 2 * head.saved_text or text < head.saved_text or frames >= text // CHARACTERS_PER_FRAME

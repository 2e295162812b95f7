"""Writing a batch: its rows and heads into the tables, one statement each, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from frameledger import stored
from frameledger_services.projector.head import Head, open_text
from frameledger_services.projector.rows import FrameRow, MessageRow, OutboxRow, Rows
from frameledger_services.store import batch as statements
from frameledger_services.store import heads as head_statements
from frameledger_services.store import tables
from frameledger_services.store.batch import Connection, headers_as_json
from frameledger_services.store.copying import copy_in

SMALL_TEXT = 4_096
"""Open text up to so many characters is stored with every batch; a longer one when it has doubled."""

_FRAMES = FrameRow._fields
_MESSAGES = tuple(name for name in MessageRow.__dataclass_fields__ if name != "inherits")
_OUTBOX = tuple(OutboxRow.__dataclass_fields__)

_values_of_message = attrgetter(*_MESSAGES)


async def write(connection: Connection, rows: Rows, heads: Iterable[Head]) -> None:
    """Write everything that a batch gathered. Raises psycopg's errors, and then nothing of it counts."""
    said_by = await statements.end_messages(connection, rows.ended)
    messages = rows.messages()
    for row in messages:
        if row.inherits:
            row.run_id = said_by.get((row.context_id, row.era, row.position))
    if rows.frames:
        await copy_in(connection, tables.frames, _FRAMES, rows.frames)
    if messages:
        await copy_in(connection, tables.messages, _MESSAGES, map(_values_of_message, messages))
    await _write_settings(connection, rows)
    await statements.insert(connection, tables.runs, list(rows.new_runs.values()))
    await statements.insert(connection, tables.tool_calls, list(rows.new_calls.values()))
    await _patch(connection, tables.runs, ("context_id", "run_id"), rows.run_patches)
    await _patch(
        connection, tables.tool_calls, ("context_id", "requested_version", "ordinal"), rows.call_patches
    )
    await _write_outbox(connection, rows)
    await _write_heads(connection, heads)


async def _write_settings(connection: Connection, rows: Rows) -> None:
    if rows.eras:
        await copy_in(connection, tables.eras, ("context_id", "valid_from", "era"), rows.eras)
    if rows.settings:
        values = [(*key, value) for key, value in rows.settings.items()]
        await copy_in(
            connection, tables.context_settings, ("context_id", "name", "valid_from", "value"), values
        )


async def _patch(connection: Connection, table: Any, key: tuple[str, ...], patches: dict[Any, Any]) -> None:
    await statements.patch(
        connection,
        table,
        key,
        [dict(zip(key, place, strict=True)) | changed for place, changed in patches.items()],
    )


async def _write_outbox(connection: Connection, rows: Rows) -> None:
    if rows.rejections:
        await copy_in(
            connection,
            tables.rejected_frames,
            (
                "topic",
                "partition",
                "offset",
                "logged_at",
                "code",
                "error",
                "context_id",
                "key",
                "value",
                "headers",
            ),
            [
                (
                    one.record.topic,
                    one.record.partition,
                    one.record.offset,
                    one.logged_at,
                    one.code,
                    one.error,
                    one.context_id,
                    one.record.key,
                    one.record.value,
                    headers_as_json(one.record.headers),
                )
                for one in rows.rejections
            ],
        )
    if rows.outbox:
        await copy_in(
            connection,
            tables.outbox,
            _OUTBOX,
            [
                [*(getattr(row, name) for name in _OUTBOX[:-1]), headers_as_json(row.headers)]
                for row in rows.outbox
            ],
        )


async def _write_heads(connection: Connection, heads: Iterable[Head]) -> None:
    new: list[dict[str, Any]] = []
    known: list[dict[str, Any]] = []
    for head in heads:
        (known if head.stored else new).append(_head_row(head))
    await head_statements.insert_new(connection, new)
    await head_statements.update(connection, known)


def _head_row(head: Head) -> dict[str, Any]:
    state, counters = head.state, head.counters
    row: dict[str, Any] = {
        "context_id": head.context_id,
        "version": head.version,
        "run_version": head.run_version,
        "started_at": head.started_at,
        "last_at": head.last_at,
        "era": state.place.era,
        "message_count": counters.messages,
        "run_count": counters.runs,
        "call_count": counters.calls,
        "open_call_count": counters.open_calls,
        "interruption_count": counters.interruptions,
        "unknown_count": counters.unknown,
        "duplicate_count": counters.duplicates,
        "recording": state.terms.recording,
        "ended": state.terms.ended,
        "open_run_id": None if state.runs.open is None else state.runs.open.run_id,
        "chain": head.chain,
    }
    if head.parked_at is not None:
        # Of a head that was parked when it was loaded, the row says it already.
        row |= {
            "parked_version": head.parked_version,
            "parked_at": head.parked_at,
            "parked_error": head.parked_error,
        }
    text = open_text(state)
    if not head.stored or text <= SMALL_TEXT or text >= 2 * head.saved_text or text < head.saved_text:
        head.saved_text, head.saved_version = text, int(state.version)
        row |= {
            "state_version": state.version,
            "fold_version": stored.FOLD_VERSION,
            "state": stored.dump(state),
        }
    return row

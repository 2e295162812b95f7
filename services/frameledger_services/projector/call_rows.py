"""Converts a change of a call to its row in `tool_calls`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, assert_never
from uuid import UUID

from pydantic_core import to_json

from frameledger import derived
from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallInterrupted,
    CallKey,
    CallProgressed,
    CallResolved,
    CallSettled,
    CallStarted,
    CallWaiting,
)
from frameledger.ids import ToolCallId
from frameledger_services.projector.head import Head
from frameledger_services.projector.row_values import clean, clean_or_none, time_of
from frameledger_services.projector.rows import Rows

CallChange = (
    CallAnnounced
    | CallDispatched
    | CallStarted
    | CallWaiting
    | CallInterrupted
    | CallProgressed
    | CallSettled
    | CallResolved
)


def write_call(rows: Rows, head: Head, change: CallChange, version: int, logged_at: Any) -> None:
    """Add the change of a call by the frame at this version to the rows of the batch and to the head's counters."""
    writing = _Writing(rows, head, version, logged_at)
    match change:
        case CallAnnounced():
            writing.announced(change)
        case CallDispatched():
            row = writing.row_of(change.key)
            row.update(status="dispatched", dispatched_version=version, dispatched_at=logged_at)
        case CallStarted():
            writing.started(change)
        case CallWaiting():
            writing.row_of(change.key).update(
                status="waiting",
                waiting_for=clean(change.for_),
                waiting_deadline=_deadline(change.deadline),
            )
        case CallInterrupted():
            writing.row_of(change.key)["interrupted_version"] = version
        case CallProgressed():
            row = writing.row_of(change.key)
            row["progress_count"] = row.get("progress_count", 0) + 1
        case CallSettled():
            head.counters.open_calls -= 1
            row = writing.row_of(change.key)
            row.update(status=change.end, settled_version=version, settled_at=logged_at)
            # The row still has the state before this frame.
            known = head.state.calls.open.get(change.tool_call_id)
            rows.settled.append(("" if known is None else known.function_name, change.end))
            if change.result is not None:
                row["result"] = to_json(change.result)
        case CallResolved():
            # The first result stays: it is what the model received at that time.
            writing.row_of(change.key)["resolved_version"] = version
        case _:
            assert_never(change)


class _Writing:
    """One change being written."""

    def __init__(self, rows: Rows, head: Head, version: int, logged_at: Any) -> None:
        self.rows = rows
        self.head = head
        self.version = version
        self.logged_at = logged_at

    def announced(self, change: CallAnnounced) -> None:
        row = self._new(change.key, change.tool_call_id, change.function_name, change.arguments)
        row.update(status="announced", run_id=change.run_id, group_id=change.group_id)
        row["builtin"] = change.builtin

    def started(self, change: CallStarted) -> None:
        if change.again:
            # The new attempt does not wait for what the previous one waited for.
            row = self.row_of(change.key)
            row.update(waiting_for=None, waiting_deadline=None)
        else:
            nobody_announced_it = change.key.requested_version == self.version
            row = (
                self._new(change.key, change.tool_call_id, change.function_name, change.arguments)
                if nobody_announced_it
                else self.row_of(change.key)
            )
            row.update(
                started_version=self.version,
                started_at=self.logged_at,
                safe_to_retry=change.safe_to_retry,
                timeout_secs=change.timeout_secs,
            )
        row.update(
            status="running",
            worker=change.worker,
            attempt=change.call_attempt or 0,
            claim=clean_or_none(change.claim),
            synchronous=change.synchronous,
        )
        if change.group_id is not None:
            row["group_id"] = change.group_id

    def row_of(self, key: CallKey) -> dict[str, Any]:
        return self.rows.call(self.head.context_id, key.requested_version, key.ordinal)

    def _new(self, key: CallKey, tool_call_id: str, function_name: str, arguments: Any) -> dict[str, Any]:
        self.head.counters.calls += 1
        self.head.counters.open_calls += 1
        context_id = self.head.context_id
        row: dict[str, Any] = {
            "context_id": context_id,
            "requested_version": key.requested_version,
            "ordinal": key.ordinal,
            "requested_at": self.logged_at,
            "tool_call_id": tool_call_id,
            "function_name": clean(function_name),
            "arguments": to_json(arguments),
            "idempotency_key": UUID(
                derived.idempotency_key(
                    context_id, key.requested_version, key.ordinal, ToolCallId(tool_call_id)
                )
            ),
        }
        self.rows.new_calls[context_id, key.requested_version, key.ordinal] = row
        return row


def _deadline(written: str | None) -> datetime | None:
    parsed = time_of(written)
    try:
        return None if parsed is None else parsed.astimezone(UTC)
    except OverflowError:  # near the limits of `datetime`
        return None

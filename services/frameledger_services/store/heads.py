"""The heads of conversations: reading many in one query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frameledger_services.database_types import Connection

ATTRIBUTES = {
    "version": "version",
    "run_version": "run_version",
    "started_at": "started_at",
    "last_at": "last_at",
    "message_count": "counters.messages",
    "run_count": "counters.runs",
    "call_count": "counters.calls",
    "open_call_count": "counters.open_calls",
    "interruption_count": "counters.interruptions",
    "unknown_count": "counters.unknown",
    "duplicate_count": "counters.duplicates",
    "chain": "chain",
}
"""Columns of `contexts` that every batch writes and loading reads, each with the attribute of `projector.head.Head`."""

_COLUMNS = (
    "context_id",
    "state_version",
    "parked_version",
    "parked_error",
    "fold_version",
    "rebuilt",
    *ATTRIBUTES,
)


@dataclass(frozen=True, slots=True)
class Unfolded:
    """A frame after the stored state, and its outcome when it was first folded."""

    payload: bytes
    outcome: str
    reason: str | None
    logged_at: datetime


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A row of `contexts`, and the frames after its stored state, in order."""

    row: Mapping[str, Any]
    unfolded: tuple[Unfolded, ...] = ()


async def load(connection: Connection, context_ids: Sequence[str]) -> dict[str, StoredHead]:
    """Returns the heads of those of these contexts that have one, with two statements for any number of them."""
    if not context_ids:
        return {}
    cursor = await connection.execute(
        f"""
        SELECT {", ".join(_COLUMNS)}, folded_by::text, state::text, EXISTS (
            SELECT FROM runs
            WHERE runs.context_id = contexts.context_id AND runs.run_id = contexts.open_run_id
                AND runs.first_text_at IS NOT NULL
        )
        FROM contexts
        WHERE context_id = ANY (%s)
        """,
        (list(context_ids),),
    )
    names = (*_COLUMNS, "folded_by", "state", "open_run_has_text")
    rows = [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]
    behind = {row["context_id"] for row in rows if _is_behind(row)}
    unfolded = await _unfolded(connection, behind) if behind else {}
    return {row["context_id"]: StoredHead(row, tuple(unfolded.get(row["context_id"], ()))) for row in rows}


async def rebuilt(connection: Connection, context_ids: Iterable[str]) -> dict[str, int]:
    """Returns how often each of these conversations was rebuilt; conversations that do not exist are omitted."""
    cursor = await connection.execute(
        "SELECT context_id, rebuilt FROM contexts WHERE context_id = ANY (%s)", (list(context_ids),)
    )
    return dict(await cursor.fetchall())


async def lock(connection: Connection, context_ids: Iterable[str]) -> None:
    """Lock the existing heads of these conversations until the transaction ends, so that they can be deleted. Otherwise
    the deletion of their rows in `verified` and `verified.store` could deadlock."""
    await connection.execute(
        "SELECT FROM contexts WHERE context_id = ANY (%s) ORDER BY context_id FOR UPDATE",
        (list(context_ids),),
    )


def _is_behind(row: Mapping[str, Any]) -> bool:
    return bool(row["state_version"] < _folded_version(row))


def _folded_version(row: Mapping[str, Any]) -> int:
    """Returns the last version that was folded, without parked frames."""
    parked = row["parked_version"]
    return int(row["version"] if parked is None else parked - 1)


async def _unfolded(connection: Connection, context_ids: set[str]) -> dict[str, list[Unfolded]]:
    cursor = await connection.execute(
        """
        SELECT frames.context_id, frames.payload::text, frames.outcome, frames.reason, frames.logged_at
        FROM contexts
        JOIN frames ON frames.context_id = contexts.context_id
            AND frames.version > contexts.state_version
            AND frames.version < coalesce(contexts.parked_version, contexts.version + 1)
        WHERE contexts.context_id = ANY (%s)
        ORDER BY frames.context_id, frames.version
        """,
        (list(context_ids),),
    )
    frames: dict[str, list[Unfolded]] = {}
    for context_id, payload, outcome, reason, logged_at in await cursor.fetchall():
        frames.setdefault(context_id, []).append(Unfolded(payload.encode(), outcome, reason, logged_at))
    return frames

"""Pages of a conversation's stored frames, as their bytes. One statement each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from frameledger_services.database_types import Connection
from frameledger_services.store.limited_frames import COLUMNS, limited


@dataclass(frozen=True, slots=True)
class PagedFrame:
    """A stored frame. Its outcome is the current one, not that at the time of storing."""

    version: int
    frame_id: UUID
    type: str
    outcome: str
    reason: str | None
    logged_at: datetime
    produced_at: datetime | None
    source: str | None
    run_id: str | None
    tool_call_id: str | None
    causation_id: UUID | None
    trace_id: str | None
    partition: int
    generation: int
    offset: int
    payload: bytes | None
    """The value of the record, byte for byte; None if it was not requested."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions on frames of a conversation, all of which have to hold."""

    after: int = 0
    before: int | None = None
    type: str | None = None
    outcome: str | None = None
    run_id: str | None = None
    ids: Sequence[UUID] | None = None
    """As they are stored."""


@dataclass(frozen=True, slots=True)
class FramePage:
    """Frames in the order of their versions."""

    frames: list[PagedFrame]
    is_all: bool
    """Whether no other frame is wanted in this direction."""


async def page(
    connection: Connection,
    context_id: str,
    wanted: Wanted,
    limit: int,
    most_bytes: int,
    *,
    newest: bool = False,
) -> FramePage:
    """Returns the first wanted frames, or with `newest` the last ones: at most `limit`, and no more than needed to
    reach `most_bytes` of payloads. At least one frame is returned if one is wanted."""
    async with connection.cursor() as cursor:
        await cursor.execute(
            _NEWEST if newest else _OLDEST,
            {
                "id": context_id,
                "after": wanted.after,
                "before": wanted.before,
                "type": wanted.type,
                "outcome": wanted.outcome,
                "run_id": wanted.run_id,
                "ids": None if wanted.ids is None else list(wanted.ids),
                # One more, to find out whether there are more.
                "one_more": limit + 1,
                "most_bytes": most_bytes,
            },
        )
        rows = await cursor.fetchall()
    frames = [PagedFrame(*row[1:]) for row in rows[:limit]]
    is_all = not rows or len(frames) == rows[0][0]
    return FramePage(frames[::-1] if newest else frames, is_all)


async def payload(connection: Connection, context_id: str, version: int) -> bytes | None:
    """Returns the value of the record of a version, byte for byte; None if there is none."""
    cursor = await connection.execute(
        "SELECT convert_to(payload::text, 'UTF8') FROM frames WHERE context_id = %s AND version = %s",
        (context_id, version),
    )
    row = await cursor.fetchone()
    return None if row is None else bytes(row[0])


def _frames(order: str) -> str:
    return f"""
        WITH wanted AS MATERIALIZED (
            SELECT {COLUMNS}, payload
            FROM frames
            WHERE context_id = %(id)s AND version > %(after)s
                AND (%(before)s::bigint IS NULL OR version < %(before)s)
                AND (%(type)s::text IS NULL OR type = %(type)s)
                AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s)
                AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s)
                AND (%(ids)s::uuid[] IS NULL OR frame_id = ANY (%(ids)s))
            ORDER BY version {order}
            LIMIT %(one_more)s
        ),
        {limited("wanted", order)}
        SELECT (SELECT count(*) FROM wanted), {COLUMNS}, payload
        FROM limited
        ORDER BY version {order}
    """


_OLDEST = _frames("ASC")
_NEWEST = _frames("DESC")

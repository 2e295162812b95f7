"""The outcomes of published frames: the position of each on the log, and its result in the projector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from frameledger.frames import AnyFrame
from frameledger.record import LogPosition
from frameledger.values import replace, value
from frameledger_services.database_types import Connection
from frameledger_services.store import erasures
from frameledger_services.store.erasures import Receipt
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.projections import PROJECTION


@value
class PublishedFrame(LogPosition):
    """A published frame: its position on the log, and, with `wait`, its outcome."""

    frame_id: str = ""
    """Its id, which is random if it was published without one."""

    type: str = ""

    version: int | None = None
    """The version of the context that it created. None without `wait`, and for a rejected frame."""

    outcome: str | None = None
    """`applied`, `ignored`, `unknown` (a type unknown to this release), `parked`, or `rejected`: it is in
    `rejected_frames`, and not a frame of the conversation. `erased`: it belonged to a life of the conversation that was
    erased before or after it arrived. None without `wait`."""

    reason: str | None = None
    """Why it was ignored or rejected: a reason in `events/rules.md`, or the code in `rejected_frames`."""

    repeated: bool = False
    """Whether the same frame had been published before. It counts once: version and outcome are those of the first
    time."""


@value
class _Stored:
    """The columns read from a row of `frames`."""

    partition: int
    offset: int
    version: int
    outcome: str
    reason: str | None


Stored = Mapping[UUID, _Stored]
"""Rows by the id under which a frame is stored."""


def acknowledged(place: LogPosition, frame: AnyFrame) -> PublishedFrame:
    """Returns a frame that the broker acknowledged, without an outcome."""
    return PublishedFrame(
        place.topic, place.partition, place.offset, place.generation, frame.id or "", frame.type
    )


async def reached(
    connection: Connection, context_id: str, published: Sequence[PublishedFrame]
) -> tuple[int | None, Stored]:
    """Returns the partition's next offset, None if no projector has ever read it; and, if that is past all of these
    frames, the rows that are stored under their ids. All frames are of one conversation, and so of one partition.

    Runs one statement, so that both are from one snapshot.
    """
    last = max(published, key=lambda one: one.offset)
    cursor = await connection.execute(
        _REACHED,
        {
            "context_id": context_id,
            "ids": [frame_uuid(one.frame_id) for one in published],
            "offset": last.offset,
            "projection": PROJECTION,
            "topic": last.topic,
            "partition": last.partition,
        },
    )
    rows = await cursor.fetchall()
    stored = {row[1]: _Stored(*row[2:]) for row in rows if row[1] is not None}
    return (int(rows[0][0]) if rows else None), stored


async def outcomes(
    connection: Connection, context_id: str, published: Sequence[PublishedFrame], stored: Stored
) -> tuple[PublishedFrame, ...]:
    """Returns the frames, of one conversation, with their outcomes. `stored` are the rows under their ids."""
    elsewhere = [one for one in published if not _is_itself(one, stored.get(frame_uuid(one.frame_id)))]
    rejected = await _rejected(connection, context_id, elsewhere) if elsewhere else {}
    known = tuple(
        _with_outcome(one, stored.get(frame_uuid(one.frame_id)), rejected.get((one.partition, one.offset)))
        for one in published
    )
    if all(one.outcome is not None for one in known):
        return known
    receipts = await erasures.receipts(connection, context_id)
    return tuple(_erased(one, receipts) if one.outcome is None else one for one in known)


async def stored(
    connection: Connection, context_id: str, published: Sequence[PublishedFrame]
) -> tuple[PublishedFrame, ...] | None:
    """Returns the frames, of one conversation, with their outcomes; None if a projector has not reached them yet."""
    next_offset, rows = await reached(connection, context_id, published)
    if next_offset is None or next_offset <= max(one.offset for one in published):
        return None
    return await outcomes(connection, context_id, published, rows)


def _erased(published: PublishedFrame, receipts: Sequence[Receipt]) -> PublishedFrame:
    """Returns a published frame that is in no table, because it erased its conversation or was erased."""
    for receipt in receipts:
        if receipt.frame_id == frame_uuid(published.frame_id):
            repeated = (receipt.partition, receipt.offset) != (published.partition, published.offset)
            return replace(published, version=receipt.version, outcome="applied", repeated=repeated)
    return replace(published, outcome="erased") if receipts else published


def _is_itself(published: PublishedFrame, stored: _Stored | None) -> bool:
    return stored is not None and (stored.partition, stored.offset) == (published.partition, published.offset)


def _with_outcome(published: PublishedFrame, stored: _Stored | None, rejected: str | None) -> PublishedFrame:
    known = (published.topic, published.partition, published.offset, published.generation)
    frame = (published.frame_id, published.type)
    if rejected is not None:
        return PublishedFrame(*known, *frame, None, "rejected", rejected)
    if stored is None:
        # A copy of it may be in transit to another partition, if partitions were added to the topic.
        return published
    repeated = not _is_itself(published, stored)
    return PublishedFrame(*known, *frame, stored.version, stored.outcome, stored.reason, repeated)


async def _rejected(
    connection: Connection, context_id: str, places: Sequence[LogPosition]
) -> dict[tuple[int, int], str]:
    """Returns the codes of rejected records of a conversation, by partition and offset, in the newest generation of the
    topic."""
    cursor = await connection.execute(
        """
        SELECT DISTINCT ON (partition, "offset") partition, "offset", code
        FROM rejected_frames
        WHERE topic = %s AND partition = %s AND "offset" = ANY (%s) AND coalesce(context_id, %s) = %s
        ORDER BY partition, "offset", generation DESC
        """,
        (places[0].topic, places[0].partition, [one.offset for one in places], context_id, context_id),
    )
    return {(partition, offset): code for partition, offset, code in await cursor.fetchall()}


_REACHED = """
    SELECT p.next_offset, f.frame_id, f.partition, f."offset", f.version, f.outcome, f.reason
    FROM projections AS p
    LEFT JOIN LATERAL (
        SELECT frame_id, partition, "offset", version, outcome, reason
        FROM frames
        WHERE p.next_offset > %(offset)s AND context_id = %(context_id)s AND frame_id = ANY (%(ids)s)
    ) AS f ON true
    WHERE p.projection = %(projection)s AND p.topic = %(topic)s AND p.sealed_at IS NULL
        AND p.partition = %(partition)s
"""

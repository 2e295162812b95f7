"""Erasures and their receipts: the statements. None commits.

For each erasure, `erasures` has what is needed to continue after it (version, chain), to prove it (the frame, byte for
byte), and to find what it did not delete (the places of the records on the log).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row, dict_row

from frameledger_services.database_types import Connection
from frameledger_services.store import heads

OLDEST_FIRST = """
    erasures.places IS NOT NULL, CASE WHEN erasures.places IS NOT NULL THEN erasures.version END,
    erasures.erased_at, erasures.version
"""
NEWEST_FIRST = """
    erasures.places IS NULL, CASE WHEN erasures.places IS NOT NULL THEN erasures.version END DESC,
    erasures.erased_at DESC, erasures.version DESC
"""
"""SQL after ORDER BY: the receipts of one conversation in the order of its lives, by their versions, which continue
across lives. Their times may contradict that, because `erased_at` is when the transaction began. Only receipts of early
releases have no `places`: after those the id began again at 1, so the time has to decide."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """An `LLMContextEraseFrame` that was folded, at its version, with the place of its record. Its texts contain no
    NUL."""

    context_id: str
    version: int
    why: str
    requested_by: str | None
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """The point from which the life after an erasure continues. `logged_at` is that of the erasing frame, or None for
    erase() in SQL, which has no frame; `at` is that time, or else the time of the erasure."""

    context_id: str
    version: int
    chain: bytes
    logged_at: datetime | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Places:
    """Where Kafka has frames of a conversation: this many records of a partition, between these offsets."""

    partition: int
    generation: int
    first_offset: int
    last_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of an erasure: a row of `erasures`."""

    context_id: str
    erased_at: datetime
    version: int
    frame_count: int
    erased_by: str
    why: str
    chain: bytes
    frame_id: UUID | None
    requested_by: str | None
    logged_at: datetime | None
    partition: int | None
    generation: int | None
    offset: int | None
    late_count: int
    places: tuple[Places, ...]


@dataclass(frozen=True, slots=True)
class Erasable:
    """Whether a conversation is in the tables, when it was last erased, and which conversations were forked from it."""

    is_there: bool
    erased_at: datetime | None
    forks: Sequence[str]


async def erasable(connection: Connection, context_id: str) -> Erasable:
    """Returns what to report before a conversation is erased."""
    async with connection.cursor(row_factory=class_row(Erasable)) as cursor:
        await cursor.execute(
            """
            SELECT
                EXISTS (SELECT FROM contexts WHERE context_id = %(id)s) AS is_there,
                (SELECT max(erased_at) FROM erasures WHERE context_id = %(id)s) AS erased_at,
                ARRAY(
                    SELECT context_id FROM contexts WHERE origin ->> 'context_id' = %(id)s ORDER BY context_id
                ) AS forks
            """,
            {"id": context_id},
        )
        [row] = await cursor.fetchall()
        return row


async def erase(connection: Connection, erasures: Collection[Erasure]) -> None:
    """Delete these conversations, each up to its erasing frame, which has to be stored at its version, and write the
    receipts. Runs in the caller's transaction, so that no other transaction sees a partial deletion."""
    if erasures:
        await heads.lock(connection, [one.context_id for one in erasures])
        await connection.execute(
            """
            SELECT count(erase_at(erased.context_id, erased.version, erased.why, erased.requested_by))
            FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[])
                AS erased (context_id, version, why, requested_by)
            """,
            (
                [one.context_id for one in erasures],
                [one.version for one in erasures],
                [one.why for one in erasures],
                [one.requested_by for one in erasures],
            ),
        )


@dataclass(frozen=True, slots=True)
class NotHonoured:
    """An erasing frame that was stored by a release that did not know its type. `is_last`: no frame came after it."""

    version: int
    partition: int
    offset: int
    payload: bytes
    is_last: bool


async def not_honoured(connection: Connection, context_id: str) -> NotHonoured | None:
    """Returns the newest erasing frame of a conversation that was stored as unknown."""
    async with connection.cursor(row_factory=class_row(NotHonoured)) as cursor:
        await cursor.execute(
            """
            SELECT frames.version, frames.partition, frames."offset",
                convert_to(frames.payload::text, 'UTF8') AS payload, frames.version = head.version AS is_last
            FROM frames
            INNER JOIN contexts AS head ON head.context_id = frames.context_id
            WHERE frames.context_id = %s AND frames.outcome = 'unknown' AND frames.type = 'LLMContextEraseFrame'
                AND head.unknown_count > 0
            ORDER BY frames.version DESC
            LIMIT 1
            """,
            (context_id,),
        )
        return await cursor.fetchone()


async def count_late(connection: Connection, late: Mapping[tuple[str, int], int]) -> None:
    """Count the frames that were left out, by context and by the version of the erasure that they arrived after."""
    if late:
        await connection.execute(
            """
            UPDATE erasures SET late_count = erasures.late_count + late.frames
            FROM unnest(%s::text[], %s::bigint[], %s::bigint[]) AS late (context_id, version, frames)
            WHERE erasures.context_id = late.context_id AND erasures.version = late.version
                AND erasures.erased_at = (
                    SELECT max(newest.erased_at) FROM erasures AS newest
                    WHERE newest.context_id = late.context_id AND newest.version = late.version
                )
            """,
            (
                [context_id for context_id, _ in late],
                [version for _, version in late],
                list(late.values()),
            ),
        )


async def beginnings(connection: Connection, context_ids: Sequence[str]) -> dict[str, Beginning]:
    """Returns where the current life of each of these conversations began, or the next one will; conversations that
    were never erased are omitted."""
    if not context_ids:
        return {}
    async with connection.cursor(row_factory=class_row(Beginning)) as cursor:
        # In early releases an erased id began again at 1: its first frame shows where its life began.
        await cursor.execute(
            f"""
            SELECT DISTINCT ON (erasures.context_id)
                erasures.context_id, erasures.version, erasures.chain, erasures.logged_at,
                coalesce(erasures.logged_at, erasures.erased_at) AS at
            FROM erasures
            LEFT JOIN LATERAL (
                SELECT min(frames.version) AS version FROM frames WHERE frames.context_id = erasures.context_id
            ) AS oldest ON true
            WHERE erasures.context_id = ANY (%s) AND coalesce(oldest.version > erasures.version, true)
            ORDER BY erasures.context_id, {NEWEST_FIRST}
            """,
            (list(context_ids),),
        )
        return {one.context_id: one for one in await cursor.fetchall()}


async def receipt(connection: Connection, context_id: str, frame_id: UUID) -> Receipt | None:
    """Returns the receipt of an erasing frame, given the id under which it was published; None until it is folded."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"{_RECEIPTS} AND frame_id = %s", (context_id, frame_id))
        row = await cursor.fetchone()
    return None if row is None else _receipt(row)


async def receipts(connection: Connection, context_id: str) -> list[Receipt]:
    """Returns the receipts of a conversation, the newest first."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(f"{_RECEIPTS} ORDER BY {NEWEST_FIRST}", (context_id,))
        return [_receipt(row) for row in await cursor.fetchall()]


async def newest_receipt(connection: Connection, context_id: str) -> Receipt | None:
    """Returns the receipt of the newest erasure of a conversation; None if it was never erased.

    Of consecutive erasures without a frame between them it is the first, which deleted the rows; the others were
    requested before that was done. An erasure by erase(), without a frame, does not count as one of them, because its
    statements about the log do not hold for the others.
    """
    newest: Receipt | None = None
    for older in await receipts(connection, context_id):
        if newest is not None and (
            newest.frame_count or older.version != newest.version - 1 or older.frame_id is None
        ):
            break
        newest = older
    return newest


def _receipt(row: dict[str, Any]) -> Receipt:
    # Receipts of early releases do not have the places of the records.
    return Receipt(**row | {"places": tuple(Places(**one) for one in row["places"] or ())})


_RECEIPTS = """
    SELECT
        context_id, erased_at, version, frame_count, erased_by, why, chain, frame_id, requested_by, logged_at,
        partition, generation, "offset", late_count, places
    FROM erasures
    WHERE context_id = %s
"""

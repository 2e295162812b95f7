"""The records that clients published after the log lost records and before it was recovered.

The copies of lost frames come after these records, which would have two wrong consequences:

- The copy of an erasure comes after frames of the next life, and a database that is filled from this log would erase
  those too. So they are published again after the copy; for the existing tables they are repetitions.
- A client may have erased a conversation whose lost frames are still in the tables, because no projector runs before
  the recovery. Copies after that erasure would begin another life, so they are omitted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from uuid import UUID

from frameledger.frames import LLMContextEraseFrame
from frameledger.headers import ORIGINALLY_LOGGED
from frameledger.record import DecodeError, LoggedFrame, Outgoing, Record, forward, read
from frameledger.values import replace
from frameledger_services.database_types import Connection
from frameledger_services.projector.late_frames import was_logged_before
from frameledger_services.recovery.copies import RepublishedErasure
from frameledger_services.store import frame_ids
from frameledger_services.store.frame_ids import frame_uuid

Reads = Callable[[int, int, int | None], AsyncGenerator[Record, None]]
"""Yields the records of a partition from an offset on, up to another one (excluded), or up to its current end if that
is None."""


async def erased_since(connection: Connection, reads: Reads, partition: int, first: int) -> set[str]:
    """Returns the conversations that are erased by records of a partition from this offset on, except those whose
    erasure is already in the tables."""
    erasures = set[tuple[str, UUID]]()
    async with aclosing(reads(partition, first, None)) as records:
        async for record in records:
            if (erasing := _erasing(record)) is not None:
                erasures.add((erasing.context_id, frame_uuid(erasing.frame_id)))
    known = await frame_ids.payloads(connection, erasures, "erasures")
    return {context_id for context_id, frame_id in erasures if (context_id, frame_id) not in known}


async def to_publish_again(
    reads: Reads,
    partition: int,
    first: int,
    erasures: Sequence[RepublishedErasure],
    generation: Callable[[int], int],
) -> list[Outgoing]:
    """Returns what is to be published again after the copies of these erasures of a partition: the frames of the erased
    conversations that clients published after the original erasure, at offsets between `first` and the copy.
    `generation` returns the generation of an offset.

    All of them are in memory at once: those of conversations that were erased just before the log lost the erasure, and
    that continued before the recovery.
    """
    newest = {one.context_id.encode(): one for one in erasures}
    known = {(one.context_id, one.frame_id) for one in erasures}
    end = max(one.place.offset for one in newest.values())
    by_key: dict[bytes, list[Outgoing]] = {key: [] for key in newest}
    async with aclosing(reads(partition, first, end)) as records:
        async for record in records:
            erasure = newest.get(record.key or b"")
            if (
                erasure is None
                or record.offset >= erasure.place.offset
                or (logged := _decoded(record)) is None
            ):
                continue
            if isinstance(logged.frame, LLMContextEraseFrame):
                if (logged.context_id, frame_uuid(logged.frame_id)) not in known:
                    # An erasure that arrived after `erased_since` had read: earlier frames have to stay erased.
                    by_key[erasure.context_id.encode()].clear()
            elif not was_logged_before(erasure.erased_at, record):
                again = _copy_again(replace(record, generation=generation(record.offset)))
                by_key[erasure.context_id.encode()].append(again)
    return [record for of_context in by_key.values() for record in of_context]


def _copy_again(record: Record) -> Outgoing:
    """Returns a copy of the same frame, with the same id. It does not have the original's time, which is before that of
    the erasure's copy."""
    copied = forward(record)
    return replace(copied, headers=tuple(one for one in copied.headers if one[0] != ORIGINALLY_LOGGED))


def _erasing(record: Record) -> LoggedFrame | None:
    if _ERASES not in (record.value or b"") or (logged := _decoded(record)) is None:
        return None
    return logged if isinstance(logged.frame, LLMContextEraseFrame) else None


_ERASES = b"LLMContextEraseFrame"


def _decoded(record: Record) -> LoggedFrame | None:
    try:
        return read(record)
    except DecodeError:
        return None

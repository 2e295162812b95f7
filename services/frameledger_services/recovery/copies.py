"""Copies of stored frames: records that restore a frame that the log lost, and decode to the same frame.

A topic may refuse a copy with all headers as too large; it then gets one with fewer headers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from frameledger.headers import (
    CAUSATION_ID,
    CE_SOURCE,
    FORWARDED_FROM,
    FRAME_ID,
    ORIGINALLY_LOGGED,
    TRACEPARENT,
    Headers,
    headers_for,
    milliseconds,
)
from frameledger.ids import ContextId
from frameledger.record import DecodeError, LogPosition, Outgoing, Record, forward, read
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.lost_frames import LostFrame

Publish = Callable[[Sequence[Outgoing]], Awaitable[list[LogPosition]]]
"""Publishes records to the frames' topic, in order. Returns their positions. If one is too large for the topic, raises
`TooLargeError` with the positions of those that were published."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A stored frame whose copy the topic does not accept: its former position, and the bytes of the smallest copy
    before compression. Without its payload, because there may be many such frames."""

    partition: int
    generation: int
    offset: int
    context_id: str
    frame_id: UUID
    bytes: int


@dataclass(frozen=True, slots=True)
class RepublishedErasure:
    """The copy of a frame that erased a conversation: its position, and when the original was logged."""

    context_id: str
    frame_id: UUID
    place: LogPosition
    erased_at: datetime


@dataclass(frozen=True, slots=True)
class Published:
    """The positions of the published copies, the frames without one, and the copies that erase a conversation."""

    places: Sequence[LogPosition]
    undecodable: int
    """Number of frames whose bytes could not be decoded."""
    too_large: Sequence[TooLarge]
    erasures: Sequence[RepublishedErasure] = ()


async def publish_copies(topic: str, frames: Sequence[LostFrame], publish: Publish) -> Published:
    """Publish copies of these frames together. If one of them is too large, those that were not published are published
    one by one, each in the largest form that the topic accepts.

    Called twice, it publishes them twice. Raises `PublishError` and `BrokerError`; it is then unknown which were
    published.
    """
    copies = [(one, copied) for one in frames if (copied := copy(topic, one)) is not None]
    try:
        places: Sequence[LogPosition | None] = await publish([copied for _, copied in copies])
    except TooLargeError as error:
        # The error does not name the record, and records after it in its partition were not published.
        places = error.places
    published, too_large, erasures = [], [], []
    for (stored, copied), place in zip(copies, places, strict=True):
        candidates = (copied, *smaller(topic, stored)) if place is None else ()
        if (lies_at := place or await _publish_first(publish, candidates)) is not None:
            published.append(lies_at)
            if stored.erased_at is not None:
                erasures.append(
                    RepublishedErasure(stored.context_id, stored.frame_id, lies_at, stored.erased_at)
                )
        else:
            too_large.append(_too_large(stored, candidates[-1]))
    return Published(published, len(frames) - len(copies), too_large, erasures)


async def _publish_first(publish: Publish, candidates: Sequence[Outgoing]) -> LogPosition | None:
    """Publish the first of these that the topic accepts. Returns its position, or None if it accepts none."""
    for candidate in dict.fromkeys(candidates):
        try:
            (place,) = await publish([candidate])
        except TooLargeError:
            continue
        return place
    return None


def _too_large(stored: LostFrame, smallest: Outgoing) -> TooLarge:
    headers = sum(len(name) + len(value or b"") for name, value in smallest.headers)
    return TooLarge(
        stored.partition,
        stored.generation,
        stored.offset,
        stored.context_id,
        stored.frame_id,
        len(smallest.key) + len(smallest.value) + headers,
    )


def copy(topic: str, stored: LostFrame) -> Outgoing | None:
    """Returns the record that restores a stored frame: the same bytes, the known headers, and two more: its former
    position, and the time at which it was logged, so that a copy after a later erasure begins no new life. Returns None
    for bytes that can no longer be decoded.

    It decodes to the stored id, bytes, source, trace and cause.
    """
    record = Record(
        topic,
        stored.partition,
        stored.offset,
        stored.context_id.encode(),
        stored.payload,
        timestamp_ms=None if stored.logged_at is None else milliseconds(stored.logged_at),
        generation=stored.generation,
    )
    try:
        frame = read(record).frame
    except DecodeError:
        return None
    # The id of the trace is stored, that of the span is not.
    trace = None if stored.trace_id is None else f"00-{stored.trace_id}-{stored.frame_id.hex[:16]}-00"
    if stored.source is not None:
        known = headers_for(
            frame,
            ContextId(stored.context_id),
            source=stored.source,
            traceparent=trace,
            causation_id=stored.causation_id,
        )
    else:
        named = ((TRACEPARENT, trace), (CAUSATION_ID, stored.causation_id))
        known = tuple((name, str(value).encode()) for name, value in named if value is not None)
    outgoing = forward(replace(record, headers=known))
    if frame.id is None and frame_uuid(read(record).frame_id) != stored.frame_id:
        # It was itself a copy of a record in another partition.
        return replace(outgoing, headers=(*outgoing.headers, (FRAME_ID, str(stored.frame_id).encode())))
    return outgoing


def smaller(topic: str, stored: LostFrame) -> Iterator[Outgoing]:
    """Yields four copies with fewer and fewer headers, for a topic that does not accept the full one. All decode to the
    stored id, bytes and source. The first two have the time at which the frame was logged, without which a copy after a
    later erasure begins a new life; the first and the third have trace and cause.

    If the payload has the frame's id, the third is no larger than the lost record was before compression, unless the
    source of that was not UTF-8 or its cause not a UUID. Yields nothing for bytes that can no longer be decoded.
    """
    full_copy = copy(topic, stored)
    if full_copy is None:
        return
    needed = {CE_SOURCE, *_identity(topic, stored, full_copy)}
    for time in ({ORIGINALLY_LOGGED}, set[str]()):
        yield replace(
            full_copy, headers=_only(full_copy.headers, {*needed, *time, TRACEPARENT, CAUSATION_ID})
        )
        yield replace(full_copy, headers=_only(full_copy.headers, needed | time))


def _identity(topic: str, stored: LostFrame, outgoing: Outgoing) -> set[str]:
    """Returns the headers without which a copy would be read as another frame."""
    where = Record(topic, stored.partition, stored.offset, outgoing.key, outgoing.value)
    if read(where).has_own_id:
        return set()
    return {FRAME_ID} if FRAME_ID in dict(outgoing.headers) else {FORWARDED_FROM}


def _only(headers: Headers, names: set[str]) -> Headers:
    return tuple(pair for pair in headers if pair[0] in names)

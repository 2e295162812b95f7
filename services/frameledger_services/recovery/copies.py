"""Copies of stored frames: records by which a frame that the log lost gets onto it again, read as what is stored.

A topic that took a frame may not take a copy with all its headers: then it gets one with fewer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from frameledger.headers import (
    CE_SOURCE,
    FORWARDED_FROM,
    FRAME_ID,
    TRACEPARENT,
    Headers,
    headers_for,
)
from frameledger.ids import ContextId
from frameledger.record import DecodeError, Outgoing, Place, Record, forward, read
from frameledger_services.event_log.producer import TooLargeError
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.recovery import LostFrame

Publish = Callable[[Sequence[Outgoing]], Awaitable[list[Place]]]
"""Publishes records to the topic of the frames, in their order; where each lies once the broker has it. Raises
`TooLargeError`, with the places of those that it has, if the topic does not take one."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A stored frame of which the topic takes no copy: where it lay, and the bytes of the smallest copy before
    compression. Without its payload: there may be many."""

    partition: int
    generation: int
    offset: int
    context_id: str
    frame_id: UUID
    bytes: int


@dataclass(frozen=True, slots=True)
class Published:
    """What came of copies: where those lie that the log has, and of how many frames the bytes could not be read."""

    places: Sequence[Place]
    left: int
    too_large: Sequence[TooLarge]


async def publish_copies(topic: str, frames: Sequence[LostFrame], publish: Publish) -> Published:
    """Publish copies of these frames together; those that did not get onto the log so, one by one, in their order.

    Called twice it publishes them twice. Raises `PublishError` and `BrokerError`: then nobody knows which were.
    """
    made = [(one, copied) for one in frames if (copied := copy(topic, one)) is not None]
    try:
        places: Sequence[Place | None] = await publish([copied for _, copied in made])
    except TooLargeError as error:
        # Which one is not said, and what comes after it in its partition was not published.
        places = error.places
    found, too_large = [], []
    for (stored, copied), place in zip(made, places, strict=True):
        candidates = (copied, *smaller(topic, stored)) if place is None else ()
        if (lies_at := place or await _publish_first(publish, candidates)) is not None:
            found.append(lies_at)
        else:
            too_large.append(_too_large(stored, candidates[-1]))
    return Published(found, len(frames) - len(made), too_large)


async def _publish_first(publish: Publish, candidates: Sequence[Outgoing]) -> Place | None:
    """Publish the first of these that the topic takes; None if it takes none."""
    for one in dict.fromkeys(candidates):
        try:
            (place,) = await publish([one])
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
    """The record by which a stored frame gets onto the log again: the same bytes, what is known of its headers, and
    one that names where it lay. None for bytes that cannot be read any more.

    Read again it is what is stored: its id, its bytes, its source, its trace.
    """
    record = Record(
        topic,
        stored.partition,
        stored.offset,
        stored.context_id.encode(),
        stored.payload,
        generation=stored.generation,
    )
    try:
        frame = read(record).frame
    except DecodeError:
        return None
    # Of the trace its id is stored; that of the span is not.
    trace = None if stored.trace_id is None else f"00-{stored.trace_id}-{stored.frame_id.hex[:16]}-00"
    if stored.source is not None:
        known = headers_for(frame, ContextId(stored.context_id), source=stored.source, traceparent=trace)
    else:
        known = () if trace is None else ((TRACEPARENT, trace.encode()),)
    made = forward(replace(record, headers=known))
    if frame.id is None and frame_uuid(read(record).frame_id) != stored.frame_id:
        # It was itself a copy of a record in another partition.
        return replace(made, headers=(*made.headers, (FRAME_ID, str(stored.frame_id).encode())))
    return made


def smaller(topic: str, stored: LostFrame) -> Iterator[Outgoing]:
    """The same copy with fewer headers, and then with fewer still, for a topic that takes no more. Read again each has
    the id, the bytes and the source that are stored; the last has no trace.

    If the frame has an id of its own, the first is no larger than the record that was lost, before compression and
    unless that had a source that was no UTF-8. Nothing for bytes that cannot be read any more.
    """
    made = copy(topic, stored)
    if made is None:
        return
    needed = {CE_SOURCE, *_identity(topic, stored, made)}
    yield replace(made, headers=_only(made.headers, {*needed, TRACEPARENT}))
    yield replace(made, headers=_only(made.headers, needed))


def _identity(topic: str, stored: LostFrame, made: Outgoing) -> set[str]:
    """The headers without which a copy would be read as another frame."""
    where = Record(topic, stored.partition, stored.offset, made.key, made.value)
    if read(where).has_own_id:
        return set()
    return {FRAME_ID} if FRAME_ID in dict(made.headers) else {FORWARDED_FROM}


def _only(headers: Headers, names: set[str]) -> Headers:
    return tuple(pair for pair in headers if pair[0] in names)

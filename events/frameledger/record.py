"""The record: a frame as key, value and headers on the log, and back.

The key is the context id, the value is the frame as JSON, and the headers describe it for other readers.
"""

from typing import Final
from uuid import UUID, uuid5

from frameledger.decode_error import DecodeError
from frameledger.decoding import MAX_VALUE_BYTES, decode
from frameledger.frames import AnyFrame, encode_frame
from frameledger.headers import (
    ENCRYPTION,
    FIRST_GENERATION,
    FORWARDED_FROM,
    ORIGINALLY_LOGGED,
    Headers,
    LogPosition,
    causation_id_of,
    forwarded_from,
    frame_id_of,
    headers_for,
    originally_logged,
    originally_logged_ms,
    source_of,
    trace_id_in,
    traceparent_of,
)
from frameledger.ids import ContextId, FrameId
from frameledger.values import value

__all__ = [
    "FIRST_GENERATION",
    "MAX_KEY_BYTES",
    "MAX_VALUE_BYTES",
    "DecodeError",
    "LogPosition",
    "LoggedFrame",
    "Outgoing",
    "Record",
    "decode",
    "derived_id",
    "forward",
    "is_context_id",
    "outgoing",
    "place_of",
    "read",
]

MAX_KEY_BYTES = 255

DERIVED_IDS: Final = UUID("ce26d6c9-86cf-4ee7-a379-bcc170f9266b")
"""The namespace of ids that are derived from a position. It never changes: stored ids were derived from it."""


@value
class Record:
    """A record as it is on the log, unchecked. Times are milliseconds since 1970, UTC."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    generation: int = FIRST_GENERATION
    """The topic's generation, as the reader of the record knows it (`LogPosition`); the broker does not have it."""


@value
class LoggedFrame:
    """A frame of a context, with its origin."""

    context_id: ContextId
    frame_id: FrameId
    """The frame's own id; else the one in a header of a copy; else the one derived from `place`."""

    has_own_id: bool
    """False if the id was derived: then only a copy of the frame is a repetition of it."""

    frame: AnyFrame
    source: str | None
    """The publisher's name for itself."""

    causation_id: FrameId | None
    """The frame of this context that caused it, according to its publisher. It may not exist."""

    traceparent: str | None
    """The trace and the span of the frame, according to its publisher (W3C). Everything that follows from the frame
    passes them on."""

    place: LogPosition
    """The position of its publisher's record; for a forwarded copy this differs from that of `record`."""

    record: Record

    @property
    def trace_id(self) -> str | None:
        """The trace id in `traceparent`: 32 hexadecimal digits."""
        return trace_id_in(self.traceparent)


@value
class Outgoing:
    """A record for a producer, which adds the topic and computes the partition from the key."""

    key: bytes
    value: bytes
    headers: Headers


def read(record: Record) -> LoggedFrame:
    """Returns the frame in this record. The same record always gives the same result.

    Raises only `DecodeError`. If a record has several problems, encryption is reported first, then the key, then the
    value.
    """
    headers = dict(record.headers)
    if ENCRYPTION in headers:
        raise DecodeError(
            "encrypted", f'the record has the header "{ENCRYPTION}"; encrypted values cannot be read yet'
        )
    context_id = _context_id(record.key)
    if record.value is None:
        raise DecodeError("empty", "the record has no value; nothing is deleted from this log")
    frame = decode(record.value)
    place = forwarded_from(headers) or place_of(record)
    return LoggedFrame(
        context_id=context_id,
        frame_id=FrameId(frame.id or frame_id_of(headers) or derived_id(place)),
        has_own_id=frame.id is not None,
        frame=frame,
        source=source_of(headers),
        causation_id=causation_id_of(headers),
        traceparent=traceparent_of(headers),
        place=place,
        record=record,
    )


def derived_id(place: LogPosition) -> FrameId:
    """Returns the id of a frame without an id of its own: a uuid5 of `topic:partition:offset` of its publisher's
    record, with the generation after the topic if it is not the first, because offsets may repeat in another
    generation. A copy has the id of its original."""
    where = f"{place.partition}:{place.offset}"
    topic = place.topic if place.generation == FIRST_GENERATION else f"{place.topic}:{place.generation}"
    return FrameId(str(uuid5(DERIVED_IDS, f"{topic}:{where}")))


def place_of(record: Record) -> LogPosition:
    """Returns the position of this record itself on the log, even if it is a copy of another one."""
    return LogPosition(record.topic, record.partition, record.offset, record.generation)


def outgoing(
    frame: AnyFrame,
    context_id: ContextId,
    *,
    source: str,
    traceparent: str | None = None,
    causation_id: UUID | str | None = None,
    encoded: bytes | None = None,
) -> Outgoing:
    """Returns the record with which this frame of this context is published. `encoded` are the bytes from which
    `decode` read the frame, if these are to be published unchanged.

    Raises ValueError, with the problem, for a context id or a `causation_id` that is not 1 to 255 bytes of UTF-8
    without NUL, and for a frame that could not be read again: without a JSON form, or whose bytes `decode` refuses.
    """
    try:
        key = context_id.encode()
        _context_id(key)
    except (UnicodeEncodeError, DecodeError) as error:
        raise ValueError(f"context_id: {error}") from error
    value = _encoded(frame) if encoded is None else encoded
    headers = headers_for(
        frame, context_id, source=source, traceparent=traceparent, causation_id=causation_id
    )
    return Outgoing(key, value, headers)


def _encoded(frame: AnyFrame) -> bytes:
    value = encode_frame(frame)
    try:
        decode(value)
    except DecodeError as error:
        raise ValueError(f"{frame.type}: {error}") from error
    return value


def forward(record: Record) -> Outgoing:
    """Returns a copy of a record, for instance of one in a foreign partition: the same key, bytes and headers, with two
    more headers for the position of the original and, if it is known, the time at which it was logged. A copy of a copy
    has those of the original.

    Raises ValueError for a record without key or value, which belongs to no conversation.
    """
    if record.key is None or record.value is None:
        raise ValueError("only a record with key and value can be forwarded")
    original = forwarded_from(dict(record.headers)) or place_of(record)
    logged = originally_logged_ms(dict(record.headers))
    if logged is None:
        logged = record.timestamp_ms
    others = tuple(pair for pair in record.headers if pair[0] not in (FORWARDED_FROM, ORIGINALLY_LOGGED))
    added = [(FORWARDED_FROM, str(original).encode())]
    if logged is not None:
        added.append(originally_logged(logged))
    return Outgoing(record.key, record.value, (*others, *added))


def is_context_id(text: str) -> bool:
    """Returns whether a text can be the id of a conversation: as the key of a record it is UTF-8 of 1 to
    `MAX_KEY_BYTES` bytes without NUL."""
    try:
        return 0 < len(text.encode()) <= MAX_KEY_BYTES and "\x00" not in text
    except UnicodeEncodeError:
        return False


def _context_id(key: bytes | None) -> ContextId:
    if not key:
        raise DecodeError("bad_key", "the record has no key; the key is the context id")
    if len(key) > MAX_KEY_BYTES:
        raise DecodeError("bad_key", f"the key has {len(key)} bytes; a context id has 1 to {MAX_KEY_BYTES}")
    if b"\x00" in key:
        raise DecodeError("bad_key", "the key contains NUL")
    try:
        return ContextId(key.decode())
    except UnicodeDecodeError as error:
        problem = DecodeError("bad_key", f"the key is not UTF-8 at byte {error.start}")
    raise problem

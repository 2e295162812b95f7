"""The headers of a record: CloudEvents in binary mode, W3C trace context, and some of our own.

Headers are read for people, for deduplication, and to find what an erasure covers; never by the fold. A header that
cannot be read counts as absent, so only `enc` makes a frame unreadable. If there are several with one name, the last
counts.
"""

import re
from datetime import datetime
from uuid import UUID

from frameledger.decoding import MAX_ID_BYTES
from frameledger.frames import Frame
from frameledger.ids import ContextId, FrameId
from frameledger.values import value

Headers = tuple[tuple[str, bytes | None], ...]
"""In the order of the log. Kafka allows repeated names and null values."""

CE_SPECVERSION = "ce_specversion"
CE_ID = "ce_id"
CE_TYPE = "ce_type"
CE_SOURCE = "ce_source"
CE_SUBJECT = "ce_subject"
CE_TIME = "ce_time"
TRACEPARENT = "traceparent"

ENCRYPTION = "enc"
"""Reserved for values that are encrypted with a key of their context. Nothing writes it yet; a record that has it is
refused, because its value would be taken for a broken frame."""

FORWARDED_FROM = "fl_forwarded_from"
"""On a copy, made because a record was in a foreign partition or because the log lost it:
`topic:generation:partition:offset` of the record that a publisher wrote."""

ORIGINALLY_LOGGED = "fl_originally_logged_ms"
"""On a copy that was made because a record was in a foreign partition, or of a dead letter that is retried: when the
broker received that record, in milliseconds since 1970. On a copy of a replay: when its opening was logged. It
identifies copies, published after an erasure, of records from before it."""

FRAME_ID = "fl_frame_id"
"""On a copy of a frame without an id, if its assigned id is not derived from the position that the copy names: the id,
a UUID."""

CAUSATION_ID = "fl_causation_id"
"""The id of the frame, of the same context, that caused its publisher to publish this one. Our services write UUIDs;
any id of a frame is accepted."""

REJECTED_TOPIC = "fl_topic"
"""On a dead letter, whose record is not a frame: the topic of that record. The dead letter also has the record's
headers."""

REJECTED_GENERATION = "fl_generation"
"""On a dead letter: the generation of that topic."""

REJECTED_PARTITION = "fl_partition"
"""On a dead letter: the record's partition."""

REJECTED_OFFSET = "fl_offset"
"""On a dead letter: the record's offset."""

REJECTED_CODE = "fl_code"
"""On a dead letter: the code of the `DecodeError`, or `context_erased`."""

REJECTED_ERROR = "fl_error"
"""On a dead letter: what is wrong with the record, as a sentence."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
# Version 00 ends after the flags, later versions may continue, and ff is invalid. Zeros mean that there is no trace.
_TRACEPARENT = re.compile(
    rb"(?!ff|00.{53}.)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?",
    re.DOTALL,
)
_TRACEPARENT_BYTES = 55
_UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MILLISECONDS = re.compile(rb"\d{1,15}")
_PLACE = re.compile(rb"([a-zA-Z0-9._-]{1,249}):(\d{1,9}):(\d{1,9}):(\d{1,18})")


FIRST_GENERATION = 1
"""The generation of every topic until `recover` begins the next one."""


@value
class LogPosition:
    """The position of a record. When a log lost records or its topic was recreated, the topic's next `generation`
    begins (`frameledger recover`), in which offsets may repeat."""

    topic: str
    partition: int
    offset: int
    generation: int = FIRST_GENERATION

    def __str__(self) -> str:
        return f"{self.topic}:{self.generation}:{self.partition}:{self.offset}"


def headers_for(
    frame: Frame,
    context_id: ContextId,
    *,
    source: str,
    traceparent: str | None = None,
    causation_id: UUID | str | None = None,
) -> tuple[tuple[str, bytes], ...]:
    """Returns the headers with which a frame of this context is published.

    `source` names the publisher, as a URI reference. The id is omitted for a frame without one, because its id is
    derived from its position on the log, and the time if `produced_at` is not a valid RFC 3339 time, as CloudEvents
    requires. A `traceparent` is passed on unchanged. `causation_id` is the id of the frame that caused this one. Raises
    ValueError for text that cannot be encoded as UTF-8, and for a cause that is not an id of a frame.
    """
    headers = [(CE_SPECVERSION, b"1.0")]
    if frame.id is not None:
        headers.append((CE_ID, frame.id.encode()))
    headers += (
        (CE_TYPE, frame.type.encode()),
        (CE_SOURCE, source.encode()),
        (CE_SUBJECT, context_id.encode()),
    )
    # In a frame of an unknown type it may have any value.
    if isinstance(frame.produced_at, str) and _RFC3339.fullmatch(frame.produced_at):
        headers.append((CE_TIME, frame.produced_at.encode()))
    if traceparent is not None:
        headers.append((TRACEPARENT, traceparent.encode()))
    if causation_id is not None:
        cause = str(causation_id).encode()
        if _id(cause) is None:
            raise ValueError(f"causation_id: an id is text of 1 to {MAX_ID_BYTES} bytes without NUL")
        headers.append((CAUSATION_ID, cause))
    return tuple(headers)


Named = dict[str, bytes | None]
"""`dict(headers)`: by name; if there are several with one name, the last."""


def source_of(headers: Named) -> str | None:
    """Returns the publisher's name for itself. NUL and bytes that are not UTF-8 become replacement characters, so that
    a database accepts the text."""
    value = headers.get(CE_SOURCE)
    if value is None:
        return None
    return value.decode(errors="replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")


def traceparent_of(headers: Named) -> str | None:
    """Returns the header `traceparent` in the form of version 00, to be passed on to what follows from the frame; None
    if it is not valid by the rules of W3C trace context."""
    value = headers.get(TRACEPARENT)
    if value is None or _TRACEPARENT.fullmatch(value) is None:
        return None
    return "00" + value[2:_TRACEPARENT_BYTES].decode()


def trace_id_in(traceparent: str | None) -> str | None:
    """Returns the 32 hexadecimal digits of the trace id in a valid `traceparent`."""
    return None if traceparent is None else traceparent[3:35]


def forwarded_from(headers: Named) -> LogPosition | None:
    """Returns the position of the original of this copy; None if this is not a copy."""
    value = headers.get(FORWARDED_FROM)
    return None if value is None else read_place(value)


def read_place(text: bytes) -> LogPosition | None:
    """Returns the position that a text names, in the form of `str(LogPosition)`; None if it names none."""
    match = _PLACE.fullmatch(text)
    if match is None:
        return None
    topic, generation, partition, offset = match.groups()
    return LogPosition(topic.decode(), int(partition), int(offset), int(generation))


def originally_logged(logged_ms: int) -> tuple[str, bytes]:
    """Returns the header of a copy with the time at which the record was logged, in milliseconds since 1970."""
    return ORIGINALLY_LOGGED, str(logged_ms).encode()


def milliseconds(time: datetime) -> int:
    """Returns a time in the form of records: in whole milliseconds since 1970."""
    return round(time.timestamp() * 1000)


def originally_logged_ms(headers: Named) -> int | None:
    """Returns when the original of this copy was logged, in milliseconds since 1970; None if the copy does not have
    it."""
    value = headers.get(ORIGINALLY_LOGGED)
    return int(value) if value is not None and _MILLISECONDS.fullmatch(value) else None


def frame_id_of(headers: Named) -> str | None:
    """Returns the id that was assigned to a frame without one; None unless the header is a UUID."""
    value = headers.get(FRAME_ID)
    match = None if value is None else _UUID.fullmatch(value)
    return None if match is None else match[0].decode()


def causation_id_of(headers: Named) -> FrameId | None:
    """Returns the id of the frame that caused this one, as its publisher wrote it; None if the header is not an id."""
    value = headers.get(CAUSATION_ID)
    return None if value is None else _id(value)


def _id(value: bytes) -> FrameId | None:
    if not 0 < len(value) <= MAX_ID_BYTES or b"\x00" in value:
        return None
    try:
        return FrameId(value.decode())
    except UnicodeDecodeError:
        return None

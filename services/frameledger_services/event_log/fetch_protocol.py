"""Fetches to the broker and its answers, written and read quickly.

Both name every partition of a consumer, each time, and what most of them have is nothing. aiokafka takes the message
apart field by field, which for 64 partitions is longer than all else that is done for one frame. What stands in them
is the same.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct
from typing import Any

from aiokafka.protocol.fetch import FetchRequest_v11, FetchResponse_v11

_HEAD = Struct(">ihii")
_COUNT = Struct(">i")
_LENGTH = Struct(">h")
_PARTITION = Struct(">ihqqqi")
_ABORTED = Struct(">qq")
_TAIL = Struct(">ii")
_ASKED = Struct(">iiqqi")
_ASKING = Struct(">iiiibii")


def install() -> None:
    """Have aiokafka read and write this way, in this process. Called twice it does nothing more."""
    FetchResponse_v11.decode = classmethod(_decoded)
    FetchRequest_v11.encode = _encoded


def _decoded(answer: Any, data: BytesIO | bytes) -> Any:
    """The answer that the rest of the data is. Raises ValueError or `struct.error` for data that end too early."""
    # Without a copy: it may be many megabytes.
    buffer, at = (data, 0) if isinstance(data, bytes) else (data.getvalue(), data.tell())
    throttled, error, session, count = _HEAD.unpack_from(buffer, at)
    at += _HEAD.size
    topics = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(buffer, at)
        at += _LENGTH.size + length
        name = buffer[at - length : at].decode()
        (count,) = _COUNT.unpack_from(buffer, at)
        at += _COUNT.size
        partitions = []
        for _ in range(count):
            *before, count_aborted = _PARTITION.unpack_from(buffer, at)
            at += _PARTITION.size
            aborted = None
            if count_aborted >= 0:
                end = at + count_aborted * _ABORTED.size
                aborted = list(_ABORTED.iter_unpack(buffer[at:end]))
                at = end
            replica, length = _TAIL.unpack_from(buffer, at)
            at += _TAIL.size
            records = None
            if length >= 0:
                at += length
                records = buffer[at - length : at]
                if len(records) < length:
                    raise ValueError(f"The answer to a fetch ends within the records of {name}.")
            partitions.append((*before, aborted, replica, records))
        topics.append((name, partitions))
    return answer(throttled, error, session, topics)


def _encoded(request: Any) -> bytes:
    head = _ASKING.pack(
        request.replica_id,
        request.max_wait_time,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
    )
    parts = [head, _COUNT.pack(len(request.topics))]
    for topic, partitions in request.topics:
        parts += _text(topic), _COUNT.pack(len(partitions))
        parts += (_ASKED.pack(*one) for one in partitions)
    parts.append(_COUNT.pack(len(request.forgotten_topics_data)))
    for topic, forgotten in request.forgotten_topics_data:
        parts += _text(topic), _COUNT.pack(len(forgotten))
        parts += (_COUNT.pack(one) for one in forgotten)
    parts.append(_text(request.rack_id))
    return b"".join(parts)


def _text(text: str) -> bytes:
    written = text.encode()
    return _LENGTH.pack(len(written)) + written

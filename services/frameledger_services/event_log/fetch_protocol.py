"""Fetch requests and their responses, encoded and decoded quickly.

Both list every partition of a consumer each time, and most partitions have nothing. aiokafka decodes the message field
by field, which for 64 partitions takes longer than all other work for one frame. The bytes and the values are the same.
Only our consumers use these subclasses.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct
from typing import Any, Self

from aiokafka.protocol.fetch import FetchRequest, FetchRequest_v11, FetchResponse_v11

from frameledger_services.event_log.protocol_parts import COUNT, QuickHeaders, encoded_text, topic_at

_HEAD = Struct(">ihii")
_PARTITION = Struct(">ihqqqi")
_ABORTED = Struct(">qq")
_TAIL = Struct(">ii")
_PARTITION_REQUEST = Struct(">iiqqi")
_REQUEST = Struct(">iiiibii")


class QuickFetch(FetchRequest):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """A fetch request. For a broker that does not support version 11, aiokafka's own request is sent."""

    def build(self, request_struct_class: Any) -> Any:
        return super().build(
            QuickFetchRequest if request_struct_class is FetchRequest_v11 else request_struct_class
        )


class QuickFetchResponse(FetchResponse_v11):  # type: ignore[misc]  # as above
    """A response of version 11."""

    @classmethod
    def decode(cls, data: BytesIO | bytes) -> Self:
        """Returns the response that the rest of the data encodes. Raises ValueError or `struct.error` for truncated
        data."""
        # Without a copy: it may be many megabytes.
        buffer, at = (data, 0) if isinstance(data, bytes) else (data.getvalue(), data.tell())
        throttled, error, session, count = _HEAD.unpack_from(buffer, at)
        at += _HEAD.size
        topics = []
        for _ in range(count):
            name, count, at = topic_at(buffer, at)
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
        response: Self = cls(throttled, error, session, topics)
        return response


class QuickFetchRequest(QuickHeaders, FetchRequest_v11):  # type: ignore[misc]  # as above
    """A request of version 11."""

    RESPONSE_TYPE = QuickFetchResponse

    def encode(self) -> bytes:
        head = _REQUEST.pack(
            self.replica_id,
            self.max_wait_time,
            self.min_bytes,
            self.max_bytes,
            self.isolation_level,
            self.session_id,
            self.session_epoch,
        )
        parts = [head, COUNT.pack(len(self.topics))]
        for topic, partitions in self.topics:
            parts += encoded_text(topic), COUNT.pack(len(partitions))
            parts += (_PARTITION_REQUEST.pack(*one) for one in partitions)
        parts.append(COUNT.pack(len(self.forgotten_topics_data)))
        for topic, forgotten in self.forgotten_topics_data:
            parts += encoded_text(topic), COUNT.pack(len(forgotten))
            parts += (COUNT.pack(one) for one in forgotten)
        parts.append(encoded_text(self.rack_id))
        return b"".join(parts)

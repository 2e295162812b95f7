"""What fetch and produce requests and their responses have in common, encoded and decoded quickly.

aiokafka encodes and decodes them field by field. The bytes and the values are the same.
"""

from __future__ import annotations

from io import BytesIO
from struct import Struct
from typing import NamedTuple

_REQUEST = Struct(">hhi")
_RESPONSE = Struct(">i")
_LENGTH = Struct(">h")
COUNT = Struct(">i")
"""The number of elements of an array."""


class _RequestHeader(NamedTuple):
    encoded: bytes

    def encode(self) -> bytes:
        return self.encoded


class _ResponseHeader(NamedTuple):
    correlation_id: int


class QuickHeaders:
    """For subclasses of aiokafka's request structures, except of versions whose headers have tagged fields."""

    API_KEY: int
    API_VERSION: int

    def build_request_header(self, correlation_id: int, client_id: str) -> _RequestHeader:
        return _RequestHeader(
            _REQUEST.pack(self.API_KEY, self.API_VERSION, correlation_id) + encoded_text(client_id)
        )

    def parse_response_header(self, data: BytesIO) -> _ResponseHeader:
        """Returns the header at the beginning of the data, and leaves the rest to be read. Raises `struct.error` for
        truncated data."""
        return _ResponseHeader(*_RESPONSE.unpack(data.read(_RESPONSE.size)))


def encoded_text(text: str) -> bytes:
    """Returns a text of the protocol: its length in bytes, and its UTF-8."""
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def topic_at(buffer: bytes, at: int) -> tuple[str, int, int]:
    """Returns the name of the topic that begins here, the number of its partitions, and where they begin. Raises
    ValueError or `struct.error` for truncated data."""
    (length,) = _LENGTH.unpack_from(buffer, at)
    at += _LENGTH.size + length
    name = buffer[at - length : at].decode()
    (count,) = COUNT.unpack_from(buffer, at)
    return name, count, at + COUNT.size

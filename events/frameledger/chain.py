"""The hash chain of a conversation: one number that fixes all of its frames, their order and their count.

    chain(0) = sha256(utf8(context_id))
    chain(n) = sha256(chain(n-1) || int8send(n) || int4send(length of source, -1 for null) || utf8(source) || value)

`value` is the record's value, byte for byte, and `n` the frame's version. Each link can be computed again from
the frames, and a changed, missing or added frame changes every link after it. The SQL function `verify_chain`
computes the same in the database. Stored for ever: neither function may change what it returns.
"""

from __future__ import annotations

from hashlib import sha256


def first_link(context_id: str) -> bytes:
    """Returns chain(0) of a conversation, 32 bytes."""
    return sha256(context_id.encode()).digest()


def next_link(chain: bytes, version: int, source: str | None, value: bytes) -> bytes:
    """Returns the link of the frame with this version, source and value, 32 bytes. `chain` is the link before it."""
    name = b"" if source is None else source.encode("utf-8", "replace")
    length = -1 if source is None else len(name)
    return sha256(
        b"".join((chain, version.to_bytes(8, "big"), length.to_bytes(4, "big", signed=True), name, value))
    ).digest()

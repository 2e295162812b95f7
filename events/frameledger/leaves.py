"""The leaves of the Merkle tree over a database: one for each conversation, and one for each receipt of an erasure.

    leaf = int4send(length of name) || name || int8send(version) || chain

The name of a conversation is its context id in UTF-8. The name of a receipt, which `erase` leaves of a conversation, is
`sha256("erased" || context_id)`: a reader who knows the id finds the receipt, and others cannot learn the id. Leaves
are in the byte order of the context ids; for one id first its receipts, the oldest first, and then the current
conversation. So an id that was erased twice and exists again has three leaves, and none of them ever disappears.
"""

from __future__ import annotations

from hashlib import sha256


def leaf(name: bytes, version: int, chain: bytes) -> bytes:
    """Returns the data of a leaf. `chain` is the head of the conversation's hash chain, at `version`."""
    return b"".join((len(name).to_bytes(4, "big"), name, version.to_bytes(8, "big"), chain))


def living_name(context_id: str) -> bytes:
    """Returns the name of a conversation's leaf."""
    return context_id.encode()


def erased_name(context_id: str) -> bytes:
    """Returns the name of the leaves of a conversation's receipts, 32 bytes."""
    return sha256(b"erased" + context_id.encode()).digest()

"""Proofs: a file with the frames of one conversation and their Merkle path to a root that was recorded elsewhere.

A proof is JSON Lines: a `ProofHeader`, then a `ProvenFrame` for each frame in order. Everything in it counts: `verify`
computes the hash chain from the frames, the leaf from the last link, and the root from the leaf and its path, so a file
in which a byte of a value was changed does not verify. No server and no other file is needed; memory does not grow with
the conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from frameledger.chain import first_link, next_link
from frameledger.errors import RefusedError
from frameledger.leaves import erased_name, leaf, living_name
from frameledger.merkle import Sibling, root_through
from frameledger.values import value

FORMAT: Literal["frameledger-proof/1"] = "frameledger-proof/1"

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""32 bytes in lower-case hexadecimal digits."""

StoredVersion = Annotated[int, Field(ge=1, lt=2**63)]

_Line = TypeVar("_Line", bound=BaseModel)


class ProofError(RefusedError):
    """A proof does not verify: the file was changed, or it belongs to another root.

    Remedy: Create the proof again. If that one does not verify either, the database has changed since the root was
    recorded.
    """


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Link(_Part):
    """A link of a hash chain."""

    version: StoredVersion
    chain: Hash


class Step(_Part):
    """A step of the path from a leaf to its root: the hash of the sibling, and its side."""

    side: Literal["left", "right"]
    hash: Hash


class ProofHeader(_Part):
    """The first line of a proof: the leaf, its path and the root."""

    format: Literal["frameledger-proof/1"]
    context_id: Annotated[str, Field(min_length=1, max_length=255)]
    erased: bool
    """Whether this proves the receipt of an erased conversation; no frames follow then."""

    after: Link | None
    """The link before the first frame: that of the receipt after which the conversation continued. None if the frames
    start with the first one."""

    version: StoredVersion
    """The version of the last frame."""

    chain: Hash
    """The link of the last frame."""

    path: tuple[Step, ...]
    """From the leaf upwards."""

    root: Hash

    def leaf(self) -> bytes:
        """Returns the data of the leaf."""
        name = erased_name(self.context_id) if self.erased else living_name(self.context_id)
        return leaf(name, self.version, bytes.fromhex(self.chain))


class ProvenFrame(_Part):
    """A line of a proof after the first: a frame as it is stored."""

    version: StoredVersion
    source: str | None
    payload: str
    """The value of the record: the same characters, in UTF-8 the same bytes."""


@value
class Proven:
    """What a verified proof has shown."""

    header: ProofHeader
    frame_count: int

    def statement(self) -> str:
        """Returns what is proved, as a sentence. It is proved only if the root was kept elsewhere."""
        header = self.header
        name = repr(header.context_id)
        if header.erased:
            return (
                f"When this root was computed, the database had the receipt of the erased conversation {name}, "
                f"up to version {header.version}."
            )
        beginning = "from its first frame on"
        if header.after is not None:
            beginning = f"after version {header.after.version}; what was before is not shown"
        count = f"{self.frame_count:,} frame{'' if self.frame_count == 1 else 's'}"
        return (
            f"When this root was computed, the conversation {name} had {count}, exactly those of this file and in its "
            f"order, {beginning}."
        )


def verify(lines: Iterable[bytes | str], root: bytes | None = None) -> Proven:
    """Verify a proof, given as its lines, against a root of 32 bytes. Returns what it proves. Raises `ProofError`.

    Without `root` the file is only compared with itself. That finds damage, but proves nothing: an attacker who forges
    a history also computes its root.
    """
    left = iter(lines)
    header = _parsed(ProofHeader, next(left, b""), 1)
    if root is not None and bytes.fromhex(header.root) != root:
        raise ProofError(f"The proof is of another root: {header.root}, not {root.hex()}.")
    count = _follow(header, left)
    path = (Sibling(step.side, bytes.fromhex(step.hash)) for step in header.path)
    if root_through(header.leaf(), path).hex() != header.root:
        raise ProofError(
            f"The conversation {header.context_id!r} at version {header.version} is not in the tree of this root: "
            "its leaf and path lead to another."
        )
    return Proven(header, count)


def _follow(header: ProofHeader, lines: Iterator[bytes | str]) -> int:
    """Compute the chain of the frames up to that of the header. Returns the number of frames."""
    if header.erased:
        if header.after is not None or next(lines, None) is not None:
            raise ProofError("The proof is of an erased conversation and has frames.")
        return 0
    first, version, chain = 0, 0, first_link(header.context_id)
    if header.after is not None:
        first = version = header.after.version
        chain = bytes.fromhex(header.after.chain)
    for number, line in enumerate(lines, start=2):
        frame = _parsed(ProvenFrame, line, number)
        if frame.version != version + 1:
            raise ProofError(f"Line {number} is version {frame.version}, where {version + 1} is expected.")
        version = frame.version
        chain = next_link(chain, version, frame.source, frame.payload.encode())
    if version != header.version:
        raise ProofError(
            f"The frames end with version {version}, and the proof is of {header.version} versions."
        )
    if chain.hex() != header.chain:
        raise ProofError(
            "The frames do not lead to the chain of the proof: a payload, a source or the order was changed."
        )
    return version - first


def _parsed(model: type[_Line], line: bytes | str, number: int) -> _Line:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f"{part}: " for part in found["loc"])
        raise ProofError(f"Line {number} is not part of a proof: {where}{found['msg']}.") from error

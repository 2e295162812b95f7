"""The leaves of a Merkle root in a file, to compare a later database with, conversation by conversation.

JSON Lines: a `HeadsHeader`, then one line per leaf in order. Reading the file to its end verifies that its lines make
the root in its header; the reader has to compare that root with the one that was recorded elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from frameledger.errors import RefusedError
from frameledger.leaves import erased_name, leaf, living_name
from frameledger.merkle import Tree
from frameledger.proofs import Hash, StoredVersion
from frameledger.values import value

FORMAT: Literal["frameledger-heads/1"] = "frameledger-heads/1"


class HeadsFileError(RefusedError):
    """A file was not written by `frameledger heads --full`, or was changed afterwards.

    Remedy: Use another copy of the file.
    """


@value
class Living:
    """The head of a conversation."""

    context_id: str
    version: int
    chain: bytes

    def leaf(self) -> bytes:
        """Returns the data of its leaf."""
        return leaf(living_name(self.context_id), self.version, self.chain)

    def line(self) -> str:
        """Returns its line in the file."""
        name = json.dumps(self.context_id, ensure_ascii=False)
        return f'{{"context_id":{name},"version":{self.version},"chain":"{self.chain.hex()}"}}\n'


@value
class Erased:
    """A receipt of an erased conversation. `name` is that of its leaf, which does not reveal the conversation's id."""

    name: bytes
    version: int
    chain: bytes

    @classmethod
    def of(cls, context_id: str, version: int, chain: bytes) -> Erased:
        """Returns the receipt of a conversation."""
        return cls(erased_name(context_id), version, chain)

    def leaf(self) -> bytes:
        """Returns the data of its leaf."""
        return leaf(self.name, self.version, self.chain)

    def line(self) -> str:
        """Returns its line in the file."""
        return f'{{"erased":"{self.name.hex()}","version":{self.version},"chain":"{self.chain.hex()}"}}\n'


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class HeadsHeader(_Line):
    """The first line of the file."""

    format: Literal["frameledger-heads/1"]
    root: Hash
    leaves: Annotated[int, Field(ge=0)]
    at: str
    """The time of the computation by the database's clock, in ISO 8601."""

    release: str


class _HeadLine(_Line):
    context_id: Annotated[str, Field(min_length=1, max_length=255)]
    version: StoredVersion
    chain: Hash


class _ReceiptLine(_Line):
    erased: Hash
    version: StoredVersion
    chain: Hash


_LEAF: TypeAdapter[_HeadLine | _ReceiptLine] = TypeAdapter(_HeadLine | _ReceiptLine)


def read(lines: Iterable[bytes | str]) -> tuple[HeadsHeader, Iterator[Living | Erased]]:
    """Returns the header of a file, given as its lines, and its leaves.

    Raises `HeadsFileError`, also while the leaves are read: at a line that is not a leaf or is out of order, and at the
    end if they do not make the root of the header.
    """
    left = iter(lines)
    try:
        header = HeadsHeader.model_validate_json(next(left, b""))
    except ValidationError as error:
        raise _line_error(1, error) from error
    return header, _leaves(header, left)


def _leaves(header: HeadsHeader, lines: Iterator[bytes | str]) -> Iterator[Living | Erased]:
    tree = Tree()
    before = ""
    for number, line in enumerate(lines, start=2):
        one = _read_leaf(line, number)
        if isinstance(one, Living):
            # The order of code points is that of the bytes in UTF-8.
            if one.context_id <= before:
                raise HeadsFileError(f"Line {number} is not in the order of the context ids.")
            before = one.context_id
        tree.add(one.leaf())
        yield one
    if (tree.size, tree.root().hex()) != (header.leaves, header.root):
        raise HeadsFileError(
            f"The lines of the file make the root {tree.root().hex()} of {tree.size:,} leaves; its header says "
            f"{header.root} of {header.leaves:,}."
        )


def _read_leaf(line: bytes | str, number: int) -> Living | Erased:
    try:
        found = _LEAF.validate_json(line)
    except ValidationError as error:
        raise _line_error(number, error) from error
    chain = bytes.fromhex(found.chain)
    if isinstance(found, _HeadLine):
        return Living(found.context_id, found.version, chain)
    return Erased(bytes.fromhex(found.erased), found.version, chain)


def _line_error(number: int, error: ValidationError) -> HeadsFileError:
    found = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in found["loc"])
    return HeadsFileError(f"Line {number} is not one of a file of heads: {where or 'it'}: {found['msg']}.")

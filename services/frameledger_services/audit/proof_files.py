"""Files that are verified without any server: proofs, and recorded heads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from frameledger import heads_file, proofs
from frameledger.heads_file import HeadsFileError, HeadsHeader
from frameledger.proofs import ProofHeader, Proven

FIRST_BYTES = 64 * 1024
"""More bytes than the first line of any of these files has."""


@dataclass(frozen=True, slots=True)
class ProofFile:
    """A proof that verified."""

    proven: Proven

    @property
    def statement(self) -> str:
        """Returns what it proves, in a sentence."""
        return self.proven.statement()

    @property
    def root(self) -> str:
        """Returns the root, in hexadecimal digits."""
        return self.proven.header.root


@dataclass(frozen=True, slots=True)
class HeadsFile:
    """A file of heads whose lines make its root."""

    header: HeadsHeader

    @property
    def statement(self) -> str:
        """Returns what the file is, in a sentence."""
        return (
            f"These {self.header.leaves:,} heads make this root. By the file it was computed at {self.header.at} by "
            f"release {self.header.release}."
        )

    @property
    def root(self) -> str:
        """Returns the root, in hexadecimal digits."""
        return self.header.root


def verify_file(path: Path, root: bytes | None) -> ProofFile | HeadsFile:
    """Verify a file, against a root of 32 bytes if one is given; else against the root that it names itself.

    Reads it as a stream. Raises `ProofError`, `HeadsFileError` and OSError.
    """
    if kind_of(path) == "heads":
        return HeadsFile(verify_heads(path, root))
    with path.open("rb") as lines:
        return ProofFile(proofs.verify(lines, root))


def kind_of(path: Path) -> Literal["proof", "heads", "export"] | None:
    """Returns the kind of a file by its first line, an export being a file of `transfer.lines`; None if it is none of
    them. Raises OSError."""
    with path.open("rb") as file:
        first = file.readline(FIRST_BYTES)
    try:
        header = json.loads(first)
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict):
        return None
    if header.get("frameledger") == "conversation":
        return "export"
    if header.get("format") == heads_file.FORMAT:
        return "heads"
    # For a proof whose first line was changed, the error says what is wrong in it.
    return "proof" if header.keys() & ProofHeader.model_fields.keys() else None


def verify_heads(path: Path, root: bytes | None) -> HeadsHeader:
    """Returns the header of a file of heads. Raises `HeadsFileError` if its lines do not make its root, or if that is
    not `root`; and OSError."""
    with path.open("rb") as lines:
        header, leaves = heads_file.read(lines)
        if root is not None and header.root != root.hex():
            raise HeadsFileError(f"The file is of another root: {header.root}, not {root.hex()}.")
        for _ in leaves:
            pass
    return header

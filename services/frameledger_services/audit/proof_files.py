"""Files that are verified without any server: proofs, and recorded heads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from frameledger import heads_file, proofs
from frameledger.heads_file import HeadsFileError, HeadsHeader
from frameledger.proofs import ProofHeader, Proven

FIRST_BYTES = 64 * 1024
"""An upper bound of the bytes in the first line of any of these files."""


@dataclass(frozen=True, slots=True)
class ProofFile:
    """A proof that verified."""

    proven: Proven

    @property
    def statement(self) -> str:
        """Returns a sentence that says what it proves."""
        return self.proven.statement()

    @property
    def root(self) -> str:
        """Returns the root, in hexadecimal digits."""
        return self.proven.header.root


@dataclass(frozen=True, slots=True)
class HeadsFile:
    """A verified file of heads: its lines produce its root."""

    header: HeadsHeader

    @property
    def statement(self) -> str:
        """Returns a sentence that describes the file."""
        return (
            f"These {self.header.leaves:,} heads make this root. By the file it was computed at {self.header.at} by "
            f"release {self.header.release}."
        )

    @property
    def root(self) -> str:
        """Returns the root, in hexadecimal digits."""
        return self.header.root


def verify_file(path: Path, root: bytes | None) -> ProofFile | HeadsFile:
    """Verify a file against a root of 32 bytes, by default the one in the file.

    Reads it as a stream. Raises `ProofError`, `HeadsFileError` and OSError.
    """
    kind = kind_of(path)
    with path.open("rb") as file:
        return (
            HeadsFile(verify_heads(file, root)) if kind == "heads" else ProofFile(proofs.verify(file, root))
        )


def kind_of(path: Path) -> Literal["proof", "heads", "export"] | None:
    """Returns the kind of a file by its first line; None if it is none of them. An export is a file of
    `transfer.lines`. Raises OSError."""
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
    # For a proof whose first line was changed, the error names the problem.
    return "proof" if header.keys() & ProofHeader.model_fields.keys() else None


def verify_heads(file: BinaryIO, root: bytes | None) -> HeadsHeader:
    """Returns the header of a file of heads. Raises `HeadsFileError` if its lines do not produce its root, or if that
    differs from `root`; and OSError."""
    header, leaves = heads_file.read(file)
    if root is not None and header.root != root.hex():
        raise HeadsFileError(f"The file has another root: {header.root}, not {root.hex()}.")
    for _ in leaves:
        pass
    return header

"""Writes all leaves of a root to a file. The first line is the root, which is known only at the end."""

from __future__ import annotations

import json
from typing import BinaryIO

from frameledger.heads_file import FORMAT, Erased, HeadsHeader, Living
from frameledger_services.audit.heads import Root

HEADER_BYTES = 512
"""The length of the header's line, padded with spaces, which JSON allows."""


class HeadsWriter:
    """Writes a file in the format of `frameledger.heads_file`. The file has to be seekable and empty."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        file.write(b" " * (HEADER_BYTES - 1) + b"\n")

    def add(self, leaf: Living | Erased) -> None:
        """Write a leaf. Called in the order of the tree."""
        self._file.write(leaf.line().encode())

    def finish(self, root: Root) -> None:
        """Write the header into the first line."""
        header = HeadsHeader.model_validate({"format": FORMAT, **root.to_json()})
        line = json.dumps(header.model_dump()).encode()
        assert len(line) < HEADER_BYTES, "a release has a short name"
        self._file.seek(0)
        self._file.write(line)

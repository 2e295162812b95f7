"""Atomic output files: complete under their name, or absent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from frameledger_services.cli.terminal import output


@contextmanager
def whole_file(path: Path | None) -> Iterator[BinaryIO]:
    """Yields a file to write, or standard output if there is no path. At the end of the block the file is flushed to
    disk and renamed, replacing a file of that name. An error removes it.

    A killed process leaves only a file whose name ends with `.partial`. Ends the command with exit code 1 if the file
    cannot be written.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if not path.name or path.is_dir():
        output.fail(f"{path} cannot be written: it is a folder.", "Give the path of a file.")
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with suppress(OSError):
            partial.unlink()
        # ConnectionError and TimeoutError concern a server.
        if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
            output.fail(
                f"{path} cannot be written: {error.strerror}.", "Choose another path, or free disk space."
            )
        raise

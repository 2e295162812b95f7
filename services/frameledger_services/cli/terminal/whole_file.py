"""A file that a command writes: whole under its name, or not there."""

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
    """A file to write; standard output without a path. It gets its name when the block ends, and is on disk then, in
    place of what had that name; an error removes it.

    A process that is killed leaves only a file whose name ends with `.partial`. Ends the command with exit code 1 if
    the file cannot be written.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
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
        # Those two are of a server.
        if isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError):
            output.fail(
                f"{path} cannot be written: {error.strerror}.", "Give another path, or make room there."
            )
        raise

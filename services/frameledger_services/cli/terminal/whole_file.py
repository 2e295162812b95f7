"""A file that a command writes: whole under its name, or not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from frameledger_services.cli.terminal import output


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write. It gets its name when the block ends, in place of what had that name; an error removes it.

    A process that is killed leaves only a file whose name ends with `.partial`. Ends the command with exit code 1 if
    the file cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            try:
                yield file
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
        partial.replace(path)
    except (ConnectionError, TimeoutError):
        # Errors of the system too, but of a server.
        raise
    except OSError as error:
        output.fail(f"{path} cannot be written: {error.strerror}.", "Give another path, or make room there.")

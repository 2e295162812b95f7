"""Atomic output files: complete under their name, or absent."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from frameledger_services import unfinished_file
from frameledger_services.cli.terminal import output


@contextmanager
def whole_file(path: Path | None) -> Iterator[BinaryIO]:
    """Yields a file to write, or standard output if there is no path. At the end of the block the file is flushed to
    disk and renamed, replacing a file of that name. An error removes it. A pipe or a device is written as it is.

    A killed process leaves only a file whose name ends with `.partial`, which the next one that writes the same path
    deletes. Of several commands that write the same path, the last to end replaces it. Ends the command with exit code
    1 if the file cannot be written.
    """
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    refuse_folder(path)
    with writable(path), _opened(path) as file:
        yield file


def refuse_folder(path: Path) -> None:
    """End the command with exit code 1 if the path of a file to write is that of a folder."""
    if not path.name or path.is_dir():
        output.fail(f"{path} cannot be written: it is a folder.", "Give the path of a file.")


def is_device(path: str | Path) -> bool:
    """Returns whether it is a pipe or a device. It is written as it is: renaming would put a file in its place. What is
    read of it cannot be read again."""
    # Not the methods of a path, which raise for a name that is too long.
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def behind_links(path: Path) -> Path:
    """Returns the file to replace for a new one at this path: a link stays, and leads to the new file."""
    return Path(os.path.realpath(path))


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """End the command with exit code 1 if writing the file or the folder in the block fails."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        # These concern a server, or the reader of a pipe.
        raise
    except OSError as error:
        output.fail(
            f"{path} cannot be written: {error.strerror or error}.",
            "Choose another path, or free disk space.",
        )


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if is_device(path):
        with path.open("wb") as device:
            yield device
        return
    target = behind_links(path)
    partial, opened = unfinished_file.create(target, "partial")
    try:
        with opened as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise

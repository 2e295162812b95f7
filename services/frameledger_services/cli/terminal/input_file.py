"""Errors of a file that a command reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frameledger_services.cli.terminal import output
from frameledger_services.cli.terminal.whole_file import is_device


def refuse_pipe(path: Path) -> None:
    """End the command with exit code 1 if the path of a file that is read more than once is that of a pipe."""
    if is_device(path):
        output.fail(f"{path} is a pipe or a device, and is read more than once.", "Save it as a file first.")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """End the command with exit code 1 if reading the file in the block fails."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        # These are subclasses of OSError too, but concern a server.
        raise
    except OSError as error:
        output.fail(f"{path} cannot be read: {error.strerror}.", "Give the path of a file.")

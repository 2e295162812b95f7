"""A file that a command reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frameledger_services.cli.terminal import output


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """End the command with exit code 1 if the file cannot be read in the block."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        # Errors of the system too, but of a server.
        raise
    except OSError as error:
        output.fail(f"{path} cannot be read: {error.strerror}.", "Give the path of a file.")

"""Errors of a damaged export file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from frameledger_services.cli.terminal import output
from frameledger_services.transfer.lines import BadFileError


@contextmanager
def named_if_damaged(path: Path) -> Iterator[None]:
    """End the command with exit code 1 if the block finds an invalid line in this file."""
    try:
        yield
    except BadFileError as error:
        output.fail(f"{path}, {error}.", "Export the conversation again, or copy the file again.")

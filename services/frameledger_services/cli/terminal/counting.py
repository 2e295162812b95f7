"""A running count on standard error during long work, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from frameledger_services.cli.terminal import output

EVERY = 1_000
"""The count is redrawn when it has grown by this."""


@contextmanager
def counting(text: str) -> Iterator[Callable[[], None]]:
    """Show a running count during the block. `text` is a format string with `{count:,}`. Yields a function that counts
    one."""
    console = output.error_console()
    count = 0
    with console.status(text.format(count=0)) as status:

        def count_one() -> None:
            nonlocal count
            count += 1
            if count % EVERY == 0:
                status.update(text.format(count=count))

        yield count_one

"""How far long work is, on standard error and on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

EVERY = 1_000
"""What is counted between two looks of the terminal."""


@contextmanager
def counting(what: str) -> Iterator[Callable[[], None]]:
    """Show how many were counted so far, as long as the block lasts. `what` has a place for the number: `{count:,}`."""
    console = Console(stderr=True, highlight=False)
    count = 0
    with console.status(what.format(count=0)) as status:

        def one() -> None:
            nonlocal count
            count += 1
            if count % EVERY == 0:
                status.update(what.format(count=count))

        yield one

"""A progress bar on standard error, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from frameledger_services.cli.terminal import output

Advance = Callable[[int], None]


@contextmanager
def shown(what: str, total: int | None = None) -> Iterator[Advance]:
    """Yields a function to call with the amount of work completed since the last call, of `total` if that is known."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=output.error_console(),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)

"""Output of `frameledger rebuild` while it runs: each result, and a progress bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from frameledger_services.audit.rebuild import RebuildOutcome
from frameledger_services.cli.audit import render_rebuild
from frameledger_services.cli.terminal import output
from frameledger_services.store import rebuilds


class RebuildView:
    """Output during the rebuild: results on standard output, and progress on standard error if it is a terminal."""

    def __init__(self, progress: Progress, say: Callable[[RebuildOutcome], None]) -> None:
        self._progress = progress
        self._task = progress.add_task("Rebuilding", total=None)
        self._say = say

    def begin(self, progress: rebuilds.RebuildProgress, left: int) -> None:
        """Show where the rebuild resumes, and how many conversations are left."""
        before = progress.read_count
        self._progress.update(self._task, total=before + left, completed=before)
        if progress.reached is not None:
            typer.echo(
                f"Resuming rebuild {progress.number} after {progress.reached}: {before:,} conversations are done",
                err=True,
            )

    def report(self, outcome: RebuildOutcome) -> None:
        """Print the result of a conversation."""
        self._progress.advance(self._task)
        self._say(outcome)


@contextmanager
def shown(*, as_json: bool) -> Iterator[RebuildView]:
    """Yields the view of a rebuild, with its results as JSON Lines or as text."""
    console = output.error_console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield RebuildView(progress, render_rebuild.print_json if as_json else render_rebuild.print_lines)

"""Output of `frameledger rebuild`: conversations that differ with their first differences, and a summary."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from frameledger_services.audit.rebuild import RebuildOutcome
from frameledger_services.cli.audit.render_difference import as_objects, in_words
from frameledger_services.cli.terminal import output
from frameledger_services.cli.terminal.escape import one_line
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.store.rebuilds import RebuildProgress

SHOWN = 3
"""Maximum differences of a conversation that are shown; `--json` has more."""


def print_lines(outcome: RebuildOutcome) -> None:
    """Print the result for a conversation; nothing if it does not differ."""
    for line in _lines(outcome):
        typer.echo(line)


def print_json(outcome: RebuildOutcome) -> None:
    """Print a conversation that differs, was rebuilt or cannot be folded, as a JSON object on one line."""
    if (
        not outcome.differences.count
        and not outcome.restored
        and outcome.problem is None
        and outcome.rebuilt is None
    ):
        return
    rebuilt = outcome.rebuilt
    output.print_json_object(
        {
            "context_id": outcome.context_id,
            "version": outcome.version,
            "fold_version": outcome.fold_version,
            "difference_count": outcome.differences.count,
            "differences": as_objects(outcome.differences),
            "problem": outcome.problem,
            "frames_restored": outcome.restored,
            "rebuilt": rebuilt is not None,
            "outcomes_changed": 0 if rebuilt is None else rebuilt.settled,
            "open_now": [] if rebuilt is None else [one._asdict() for one in rebuilt.newly_open],
            "open_no_more": [] if rebuilt is None else [one._asdict() for one in rebuilt.over],
            "published": 0 if rebuilt is None else len(rebuilt.outbox),
            "unsent": outcome.unsent,
        }
    )


def summary(progress: RebuildProgress, *, apply: bool) -> str:
    """Returns the summary of all conversations in one or two sentences."""
    line = f"{plural(progress.read_count, 'conversation')} folded again: {progress.differ_count:,} differed"
    if progress.failed_count:
        line += f", {progress.failed_count:,} cannot be rebuilt completely"
    if apply:
        return f"{line}, {progress.rebuilt_count:,} rebuilt."
    return (
        f"{line}. Nothing was changed; --apply replaces what differs."
        if progress.differ_count
        else f"{line}."
    )


def _lines(outcome: RebuildOutcome) -> Iterator[str]:
    if outcome.differences.count or outcome.problem is not None:
        yield (
            f"{one_line(outcome.context_id)}  {plural(outcome.differences.count, 'difference')}"
            f" up to version {outcome.version:,}" + ("; rebuilt" if outcome.rebuilt is not None else "")
        )
        differences = outcome.differences.in_order()
        yield from (f"  version {one.version:,}, {in_words(one)}" for one in differences[:SHOWN])
        if outcome.differences.count > SHOWN:
            yield f"  ... and {outcome.differences.count - SHOWN:,} more"
    if outcome.restored:
        yield f"  {plural(outcome.restored, 'frame')} restored from the log"
    if outcome.problem is not None:
        what = "not rebuilt" if outcome.rebuilt is None else "not all of it"
        yield f"  {what}: {one_line(outcome.problem)}"
    if outcome.rebuilt is not None:
        yield from (f"  now open: {one_line(str(one))}" for one in outcome.rebuilt.newly_open)
        yield from (f"  no longer open: {one_line(str(one))}" for one in outcome.rebuilt.over)
    if outcome.unsent is not None:
        yield f"  left in the outbox for the partition's next projector: {one_line(outcome.unsent)}"

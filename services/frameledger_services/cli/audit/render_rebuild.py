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


def print_lines(done: RebuildOutcome) -> None:
    """Print the result for a conversation; nothing if it does not differ."""
    for line in _lines(done):
        typer.echo(line)


def print_json(done: RebuildOutcome) -> None:
    """Print a conversation that differs, was rebuilt or cannot be folded, as a JSON object on one line."""
    if not done.differences.count and not done.restored and done.problem is None and done.rebuilt is None:
        return
    rebuilt = done.rebuilt
    output.print_json_object(
        {
            "context_id": done.context_id,
            "version": done.version,
            "fold_version": done.fold_version,
            "difference_count": done.differences.count,
            "differences": as_objects(done.differences),
            "problem": done.problem,
            "frames_restored": done.restored,
            "rebuilt": rebuilt is not None,
            "outcomes_changed": 0 if rebuilt is None else rebuilt.settled,
            "open_now": [] if rebuilt is None else [one._asdict() for one in rebuilt.begun],
            "open_no_more": [] if rebuilt is None else [one._asdict() for one in rebuilt.over],
            "published": 0 if rebuilt is None else len(rebuilt.outbox),
            "unsent": done.unsent,
        }
    )


def summary(done: RebuildProgress, *, apply: bool) -> str:
    """Returns the summary of all conversations in one or two sentences."""
    line = f"{plural(done.read_count, 'conversation')} folded again: {done.differ_count:,} differed"
    if done.failed_count:
        line += f", {done.failed_count:,} could not be folded"
    if apply:
        return f"{line}, {done.rebuilt_count:,} rebuilt."
    return f"{line}. Nothing was changed; --apply replaces what differs." if done.differ_count else f"{line}."


def _lines(done: RebuildOutcome) -> Iterator[str]:
    if done.differences.count or done.problem is not None:
        yield (
            f"{one_line(done.context_id)}  {plural(done.differences.count, 'difference')}"
            f" up to version {done.version:,}" + ("; rebuilt" if done.rebuilt is not None else "")
        )
        differences = done.differences.in_order()
        yield from (f"  version {one.version:,}, {in_words(one)}" for one in differences[:SHOWN])
        if done.differences.count > SHOWN:
            yield f"  ... and {done.differences.count - SHOWN:,} more"
    if done.restored:
        yield f"  {plural(done.restored, 'frame')} restored from the log"
    if done.problem is not None:
        yield f"  not rebuilt: {one_line(done.problem)}"
    if done.rebuilt is not None:
        yield from (f"  now open: {one_line(str(one))}" for one in done.rebuilt.begun)
        yield from (f"  no longer open: {one_line(str(one))}" for one in done.rebuilt.over)
    if done.unsent is not None:
        yield f"  left in the outbox for the partition's next projector: {one_line(done.unsent)}"

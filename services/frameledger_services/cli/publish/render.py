"""Output of `frameledger publish`: where the frames are, and their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer

from frameledger_services.cli.terminal import output
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.client import PublishedFrame

FEW = 20
"""Maximum number of frames whose outcomes are all printed."""


def print_json(published: Sequence[PublishedFrame], waited: bool) -> None:
    """Print a line for each frame: its place on the log and, if it was waited for, its outcome."""
    for frame in published:
        shown: dict[str, Any] = {"id": frame.frame_id, "type": frame.type}
        shown |= {"topic": frame.topic, "partition": frame.partition, "offset": frame.offset}
        if waited:
            shown |= {
                "version": frame.version,
                "outcome": frame.outcome,
                "reason": frame.reason,
                "repeated": frame.repeated,
            }
        output.print_json_object(shown)


def print_outcomes(published: Sequence[PublishedFrame]) -> None:
    """Print the outcome of each frame; of many, only of those that changed nothing."""
    shown = published if len(published) <= FEW else [one for one in published if one.outcome != "applied"]
    for frame in shown[:FEW]:
        where = "" if frame.version is None else f" is version {frame.version}:"
        why = "" if frame.reason is None else f", {frame.reason}"
        before = " (a repetition: it was published before)" if frame.repeated else ""
        typer.echo(
            f"{frame.type} {frame.frame_id}{where} {frame.outcome or 'not in the tables yet'}{why}{before}"
        )
    if len(shown) > FEW:
        typer.echo(f"... and {len(shown) - FEW:,} more; --json prints all.")


def print_sum(
    context: str, count: int, last: PublishedFrame, outcomes: Counter[str | None], version: int | None
) -> None:
    """Print how many frames were published, up to where, and the number of each outcome if the version is known."""
    line = f"Published {plural(count, 'frame')} to {context}: "
    line += f"{last.topic}, partition {last.partition}, up to offset {last.offset}."
    if version is not None:
        became = ", ".join(
            f"{number:,} {outcome or 'without a known outcome'}" for outcome, number in outcomes.most_common()
        )
        line += f" Outcomes: {became}. "
        # A conversation that was erased, or whose frames were all rejected.
        line += f"The conversation is at version {version}." if version else "The conversation has no frames."
    typer.echo(line)

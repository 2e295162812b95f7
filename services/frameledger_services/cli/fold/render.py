"""A folded file as text: a table of its lines, the messages, the request parameters, and the open work."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from frameledger.evolve.changes import RunRequested
from frameledger.fold import Folding
from frameledger_services.cli.fold import describe
from frameledger_services.cli.terminal import format_frame, render_context
from frameledger_services.cli.terminal.render_context import LAST, LONG
from frameledger_services.frame_file import Line

_ABOUT_FOREIGN_RUNS = (
    "Some frames name runs that this conversation did not request. Run ids derive from the conversation's id: "
    "if the frames come from a conversation with another id, give it with --context."
)

_COLOURS = {**format_frame.OUTCOME_COLORS, "duplicate": "dim", "rejected": "red"}


def show(lines: Iterable[Line], folding: Folding, console: Console, *, everything: bool = False) -> None:
    """Fold the lines and print the page. Of a long file, prints only the last lines unless `everything` is set."""
    counts: Counter[str] = Counter()
    last_lines: deque[Line] = deque(maxlen=None if everything else LONG)
    runs: set[str] = set()
    names_foreign_runs = False
    for line in lines:
        counts[line.outcome] += 1
        last_lines.append(line)
        runs.update(change.run_id for change in line.changes if isinstance(change, RunRequested))
        names_foreign_runs |= line.reason == "run_over" and getattr(line.frame, "run_id", None) not in runs
    shown = list(last_lines)
    if counts.total() > len(shown):
        shown = shown[-LAST:]
        console.print(render_context.not_shown(counts.total() - LAST, "lines"))
    if shown:
        console.print(_table(shown), "")
    state = folding.state
    render_context.show(
        render_context.title(state.context_id, state.version, len(folding.messages)),
        folding.messages.rows(),
        describe.terms_and_open(state),
        console,
        everything=everything,
    )
    if counts["rejected"]:
        console.print(Text(_about_rejected(counts), "red"))
    if names_foreign_runs:
        console.print(Text(_ABOUT_FOREIGN_RUNS, "yellow"))


def _table(lines: Iterable[Line]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("line", justify="right", no_wrap=True)
    table.add_column("version", justify="right", no_wrap=True)
    table.add_column("frame", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("what it did", overflow="fold")
    for line in lines:
        table.add_row(
            str(line.number),
            "" if line.version is None else str(line.version),
            render_context.text("" if line.frame is None else line.frame.type),
            Text(line.outcome, _COLOURS[line.outcome]),
            render_context.text(describe.outcome_text(line)),
        )
    return table


def _about_rejected(counts: Counter[str]) -> str:
    count = counts["rejected"]
    if count == counts.total():
        return "No line is a valid frame. The file must have one frame as JSON per line."
    if count == 1:
        return "One line is not a valid frame; on the log it would become a dead letter."
    return f"{count:,} lines are not valid frames; on the log they would become dead letters."

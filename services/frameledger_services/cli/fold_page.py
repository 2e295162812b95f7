"""A folded file as a page for people: a table of its lines, the messages, the terms, and what is still open."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from itertools import chain

from rich.console import Console
from rich.table import Table
from rich.text import Text

from frameledger.evolve.changes import RunRequested
from frameledger.fold import Folding
from frameledger_services.cli import fold_words
from frameledger_services.frame_file import Line

LONG = 200
"""More lines, or more messages, than this are not all shown..."""

LAST = 40
"""...but so many of the last."""

MUCH = 600
"""Characters of one text that are shown."""

# What would move the cursor, change colours or turn the direction of writing on a terminal.
_CONTROLS = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\n")},
    "\N{REPLACEMENT CHARACTER}",
) | {ord("\t"): " "}

_ABOUT_FOREIGN_RUNS = (
    "Some frames name runs that this context did not ask for. A run's id follows from the context's key: "
    "if the frames come from a context of another key, say which with --context."
)

_COLOURS = {"applied": "", "ignored": "yellow", "unknown": "magenta", "duplicate": "dim", "rejected": "red"}


def show(lines: Iterable[Line], folding: Folding, console: Console, *, everything: bool = False) -> None:
    """Fold the lines and print the page. Of a long file only the last lines are kept, unless `everything`."""
    counts: Counter[str] = Counter()
    kept: deque[Line] = deque(maxlen=None if everything else LONG)
    runs: set[str] = set()
    names_foreign_runs = False
    for line in lines:
        counts[line.outcome] += 1
        kept.append(line)
        runs.update(change.run_id for change in line.changes if isinstance(change, RunRequested))
        names_foreign_runs |= line.reason == "run_over" and getattr(line.frame, "run_id", None) not in runs
    shown = list(kept)
    if counts.total() > len(shown):
        shown = shown[-LAST:]
        console.print(_not_shown(counts.total() - LAST, "lines"))
    if shown:
        console.print(_table(shown), "")
    console.print(_summary(folding))
    rows = folding.messages.rows()
    if len(rows) > LONG and not everything:
        console.print(_not_shown(len(rows) - LAST, "messages"))
        rows = rows[-LAST:]
    messages = ((str(position), *fold_words.said(message)) for position, message in rows)
    details = (("", name, value) for name, value in fold_words.terms_and_open(folding.state))
    console.print(_context(chain(messages, details)))
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
            _text("" if line.frame is None else line.frame.type),
            Text(line.outcome, _COLOURS[line.outcome]),
            _text(fold_words.did(line)),
        )
    return table


def _summary(folding: Folding) -> Text:
    state, count = folding.state, len(folding.messages)
    messages = f"{count:,} message{'' if count == 1 else 's'}"
    return _text(f"{state.context_id} at version {state.version}: {messages}", "bold")


def _context(rows: Iterable[tuple[str, str, str]]) -> Table:
    """A line for each position or none, who or what it is about, and the text."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, min_width=4)
    grid.add_column(max_width=16, overflow="fold", style="cyan")
    grid.add_column(overflow="fold")
    for position, name, text in rows:
        grid.add_row(position, _text(name), _text(text))
    return grid


def _about_rejected(counts: Counter[str]) -> str:
    count = counts["rejected"]
    if count == counts.total():
        return "No line is a frame. What is expected is one frame as JSON on each line."
    if count == 1:
        return "One line is no frame; on the log it would be set aside."
    return f"{count:,} lines are no frames; on the log they would be set aside."


def _not_shown(count: int, what: str) -> Text:
    return Text(f"... {count:,} {what} before these (--all shows them)", "dim")


def _text(text: str, style: str = "") -> Text:
    """The text as it may be shown: cut if very long, and unable to control the terminal."""
    if len(text) > MUCH:
        text = f"{text[:MUCH]}... ({len(text) - MUCH:,} characters more)"
    return Text(text.translate(_CONTROLS), style)

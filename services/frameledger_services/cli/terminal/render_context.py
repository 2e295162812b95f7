"""A context on a terminal: its messages by position, and its details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from frameledger.evolve.changes import Message
from frameledger_services.cli.terminal import format_message
from frameledger_services.cli.terminal.plural import plural

LONG = 200
"""Maximum number of messages, or of other lines, that are shown completely; of more, only the last `LAST`."""

LAST = 40
"""Number of last lines that are shown of a long list."""

MAX_CHARACTERS = 600
"""Maximum characters of a text that are shown."""

# Characters that move the cursor, change colours or turn the writing direction on a terminal.
_CONTROLS = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {ord("\n")},
    "\N{REPLACEMENT CHARACTER}",
) | {ord("\t"): " "}


def show(
    title: str,
    rows: Sequence[tuple[int, Message]],
    details: Iterable[tuple[str, str]],
    console: Console,
    *,
    everything: bool = False,
) -> None:
    """Print the title, the messages, and a line for each detail, which is a name and a text. Of many messages it shows
    only the last ones unless `everything` is set."""
    console.print(text(title, "bold"))
    if len(rows) > LONG and not everything:
        console.print(not_shown(len(rows) - LAST, "messages"))
        rows = rows[-LAST:]
    console.print(_grid(_lines(rows, details)))


def title(context_id: str, version: int, count: int) -> str:
    """Returns the title of a context with its number of messages."""
    return f"{context_id} at version {version}: {plural(count, 'message')}"


def not_shown(count: int, what: str) -> Text:
    return Text(f"... {count:,} {what} before these (--all shows them)", "dim")


def text(written: str, style: str = "") -> Text:
    """Returns the text with control characters replaced, truncated if very long."""
    if len(written) > MAX_CHARACTERS:
        written = f"{written[:MAX_CHARACTERS]}... ({len(written) - MAX_CHARACTERS:,} characters more)"
    return Text(plain(written), style)


def plain(written: str) -> str:
    """Returns the text with control characters replaced and its line breaks kept."""
    return written.translate(_CONTROLS)


def _lines(
    rows: Iterable[tuple[int, Message]], details: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str, str]]:
    for position, message in rows:
        yield str(position), *format_message.speaker_and_text(message)
    for name, detail in details:
        yield "", name, detail


def _grid(lines: Iterable[tuple[str, str, str]]) -> Table:
    """Returns a table of lines: position or empty, speaker or name of a detail, and text."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, min_width=4)
    grid.add_column(max_width=16, overflow="fold", style="cyan")
    grid.add_column(overflow="fold")
    for position, name, written in lines:
        grid.add_row(position, text(name), text(written))
    return grid

"""Query results of the demo, on a screen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal import escape


def answer(names: Sequence[str], rows: Sequence[Sequence[Any]], width: int) -> RenderableType:
    """Returns a query result: a single JSON object entry by entry, anything else as a table. Long values are truncated
    with …"""
    if len(rows) == 1 and isinstance(rows[0][0], dict):
        return Text("\n").join(_cut(line, width) for line in _lines(rows[0][0]))
    cells = [["" if value is None else escape.one_line(str(value)) for value in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    # Only the last column is truncated, however narrow the terminal.
    widths[-1] = max(1, min(widths[-1], width - sum(widths[:-1]) - 2 * len(widths)))
    table = Table(box=None, padding=(0, 0, 0, 2))
    for name, room in zip(names, widths, strict=True):
        table.add_column(name, width=room, no_wrap=True, overflow="ellipsis", header_style="dim")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _lines(value: dict[str, Any]) -> Iterator[str]:
    """Yields the object as JSON text, with a line for each entry and for each element of a list."""
    yield "  {"
    for number, (name, entry) in enumerate(value.items(), start=1):
        comma = "," if number < len(value) else ""
        if isinstance(entry, list) and entry:
            yield f'    "{name}": ['
            for place, element in enumerate(entry, start=1):
                yield f"      {_json(element)}{',' if place < len(entry) else ''}"
            yield f"    ]{comma}"
        else:
            yield f'    "{name}": {_json(entry)}{comma}'
    yield "  }"


def _cut(line: str, width: int) -> Text:
    text = Text(line)
    text.highlight_regex(r'"(role|llm|content|tool_calls|message)":', "cyan")
    text.truncate(width, overflow="ellipsis")
    return text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

"""Output of `frameledger timeline`: a line for each entry, with its time, type, effect and text."""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Sequence
from datetime import UTC, date

from frameledger_services.cli.audit.timeline_entries import Entry
from frameledger_services.cli.terminal import escape, format_frame, pager
from frameledger_services.cli.terminal.column_text import SHORT, clock, frame_type, short_id
from frameledger_services.cli.terminal.pager import Page, Piece

_NOT_WORDS = {
    *("FunctionCallInProgressFrame", "FunctionCallResultFrame"),
    *("LLMFullResponseStartFrame", "LLMFullResponseEndFrame"),
}
"""Frames whose text is JSON or names."""

_TYPE = 22
_MIN_WIDTH = 24
"""Columns below which the effect of a frame is printed below the frame and not beside it."""


class Lines:
    """Prints a timeline on a page."""

    def __init__(self, page: Page, version_width: int, traces: Sequence[tuple[int, str]] = ()) -> None:
        """`traces`: addresses of traces with the versions of their first frames, in order."""
        self._page = page
        self._traces = deque(traces)
        self._version = version_width
        self._day: date | None = None

    def title(self, context_id: str, newest: int) -> None:
        """Print the title."""
        self._page.whole(f"{escape.printable(context_id)} up to version {newest}", "bold")

    def entry(self, entry: Entry) -> None:
        """Print the line or lines of an entry, preceded by the date if it is the first of a day."""
        frame = entry.first
        day = frame.logged_at.astimezone(UTC).date()
        if day != self._day:
            self._page.line((f"{'':{self._version}}  {day} (UTC)", "dim"))
            self._day = day
        kind = frame_type(escape.one_line(frame.type))
        if entry.frames > 1:
            kind = f"{pager.fit(kind, _TYPE - 7)} ×{entry.frames}"
        of = escape.one_line(short_id(frame.run_id or frame.tool_call_id or ""))
        head: list[Piece] = [
            (f"{entry.version:>{self._version}}  {clock(frame.logged_at)}  ", "dim"),
            (f"{pager.padded(kind, _TYPE)}  ", format_frame.OUTCOME_COLORS.get(frame.outcome, "")),
            (f"{pager.padded(of, SHORT)}  ", "cyan"),
        ]
        indent = sum(len(text) for text, _ in head)
        if self._page.width - indent < _MIN_WIDTH:
            self._page.line(*head)
            indent = self._version + 2
            head = [(" " * indent, "")]
        for rest in self._what(entry, max(self._page.width - indent, _MIN_WIDTH)):
            self._page.line(*head, *rest)
            head = [(" " * indent, "")]
        while self._traces and self._traces[0][0] <= entry.to_version:
            self._page.whole(f"{'':{self._version}}  {self._traces.popleft()[1]}", "dim")

    def _what(self, entry: Entry, width: int) -> list[list[Piece]]:
        """Returns effect and text of an entry as lines of `width` columns; the text only if it fits."""
        frame = entry.first
        color = format_frame.OUTCOME_COLORS.get(frame.outcome, "")
        did = frame.did or ""
        if frame.outcome != "applied":
            became = frame.outcome if frame.reason is None else f"{frame.outcome}: {frame.reason}"
            did = ", ".join(filter(None, [became, did]))
        did = escape.one_line(did)
        lines = [did] if len(did) <= width else textwrap.wrap(did, width)
        rows: list[list[Piece]] = [[(line, color)] for line in lines]
        text = escape.one_line(entry.said or "")
        if frame.type not in _NOT_WORDS and text:
            text = f'"{text}"'
        if not did:
            return [[(text, "dim")]]
        # Only a few letters would tell nothing.
        if text and (left := width - len(lines[-1]) - 2) >= min(len(text), 12):
            rows[-1] += [("  ", ""), (pager.fit(text, left), "dim")]
        return rows

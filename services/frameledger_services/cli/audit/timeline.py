"""`frameledger timeline`: every frame of a conversation with its effect and outcome."""

from __future__ import annotations

import asyncio
import textwrap
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import UTC, date
from typing import Annotated

import typer

from frameledger_services.cli.audit import trace_links
from frameledger_services.cli.terminal import backend, escape, moment, options, output, pager
from frameledger_services.cli.terminal.column_text import SHORT, clock, frame_type, short_id
from frameledger_services.cli.terminal.pager import Page, Piece
from frameledger_services.settings import Settings
from frameledger_services.store import history
from frameledger_services.store.history import TimelineFrame

STREAMED = {"LLMTextFrame", "VisionTextFrame", "TextFrame", "LLMThoughtTextFrame"}
"""Frames that extend a response or a thought by some text."""

_NOT_WORDS = {
    *("FunctionCallInProgressFrame", "FunctionCallResultFrame"),
    *("LLMFullResponseStartFrame", "LLMFullResponseEndFrame"),
}
"""Frames of which the text is JSON or names."""

_TYPE = 22
_LEAST = 24
"""Columns below which the effect of a frame is printed below the frame and not beside it."""

_COLORS = {"ignored": "yellow", "unknown": "magenta", "parked": "red"}

commands = typer.Typer()


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a timeline: a frame, or several frames of one streamed text, from `version` to `to_version`."""

    version: int
    to_version: int
    frames: int
    first: TimelineFrame
    last: TimelineFrame
    said: str | None


@commands.command()
def timeline(
    context: options.Context,
    first: Annotated[
        int | None, typer.Option("--from", min=1, metavar="VERSION", help="First version to show.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=1, metavar="VERSION", help="Last version to show.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print a line for each frame of a streamed text too.")
    ] = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Show every frame of a conversation: its time, its effect on the context, and its outcome.

    Frames of one streamed text are one line with their number and the beginning of the text. Times are broker times in
    UTC. Effects name messages by the positions that `show` prints; `why` explains a message. The SQL function
    `timeline_of` returns the same. With FRAMELEDGER_TRACE_URL, the address of a trace is printed below its first frame.

    Example: `frameledger timeline ctx-1 --from 40 --to 60`
    """
    if first is not None and last is not None and last < first:
        raise typer.BadParameter(
            f"version {last} comes before --from {first}: give {first} or a later version", param_hint="--to"
        )
    with backend.exit_on_error():
        asyncio.run(_timeline(Settings.from_env(), context, first, last, everything, as_json))


async def _timeline(
    settings: Settings, context: str, first: int | None, last: int | None, everything: bool, as_json: bool
) -> None:
    async with backend.connection(settings) as connection:
        found = await moment.find(connection, context, None)
        if first is not None and first > found.newest:
            output.fail(
                f"The conversation {context!r} has no version {first}.", f"It has 1 to {found.newest}."
            )
        # Closed before the connection, which waits for a running query.
        async with (
            aclosing(history.timeline(connection, context, first, last)) as frames,
            aclosing(folded(frames, everything=everything)) as entries,
        ):
            if as_json:
                async for entry in entries:
                    output.print_json_object(as_object(entry))
                return
            with pager.page(settings.pager) as page:
                traces = await trace_links.begun(
                    connection, context, first or 1, last or found.newest, settings.trace_url
                )
                lines = Lines(page, len(str(found.newest)), traces)
                lines.title(found.context_id, found.newest)
                async for entry in entries:
                    lines.entry(entry)


async def folded(frames: AsyncIterable[TimelineFrame], *, everything: bool) -> AsyncGenerator[Entry, None]:
    """Yields consecutive frames of one streamed text as one entry, unless `everything` is set, and all others
    unchanged."""
    held: Entry | None = None
    async for frame in frames:
        if held is not None and not everything and _goes_on(held.last, frame):
            said = held.said or ""
            if len(said) < escape.LONGEST:
                said += frame.said or ""
            held = Entry(held.version, frame.version, held.frames + 1, held.first, frame, said)
            continue
        if held is not None:
            yield held
        held = Entry(frame.version, frame.version, 1, frame, frame, frame.said)
    if held is not None:
        yield held


def as_object(entry: Entry) -> dict[str, object]:
    """Returns the entry as JSON: its first frame, the last version, and the number of frames."""
    told: dict[str, object] = {
        "version": entry.version,
        "to_version": entry.to_version,
        "frames": entry.frames,
    }
    return told | asdict(entry.first) | {"said": entry.said}


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
            (f"{pager.padded(kind, _TYPE)}  ", _COLORS.get(frame.outcome, "")),
            (f"{pager.padded(of, SHORT)}  ", "cyan"),
        ]
        indent = sum(len(text) for text, _ in head)
        if self._page.width - indent < _LEAST:
            self._page.line(*head)
            indent = self._version + 2
            head = [(" " * indent, "")]
        for rest in self._what(entry, max(self._page.width - indent, _LEAST)):
            self._page.line(*head, *rest)
            head = [(" " * indent, "")]
        while self._traces and self._traces[0][0] <= entry.to_version:
            self._page.whole(f"{'':{self._version}}  {self._traces.popleft()[1]}", "dim")

    def _what(self, entry: Entry, width: int) -> list[list[Piece]]:
        """Returns effect and text of an entry as lines of so many columns; the text only if there is room for it."""
        frame = entry.first
        color = _COLORS.get(frame.outcome, "")
        did = frame.did or ""
        if frame.outcome != "applied":
            became = frame.outcome if frame.reason is None else f"{frame.outcome}: {frame.reason}"
            did = ", ".join(filter(None, [became, did]))
        did = escape.one_line(did)
        lines = [did] if len(did) <= width else textwrap.wrap(did, width)
        told: list[list[Piece]] = [[(line, color)] for line in lines]
        said = escape.one_line(entry.said or "")
        if frame.type not in _NOT_WORDS and said:
            said = f'"{said}"'
        if not did:
            return [[(said, "dim")]]
        # Only a few letters would tell nothing.
        if said and (left := width - len(lines[-1]) - 2) >= min(len(said), 12):
            told[-1] += [("  ", ""), (pager.fit(said, left), "dim")]
        return told


def _goes_on(before: TimelineFrame, frame: TimelineFrame) -> bool:
    """Returns whether the frame continues the streamed text of the previous one."""
    return (
        frame.type in STREAMED
        and frame.did is None
        and (frame.type, frame.run_id, frame.outcome, frame.reason)
        == (before.type, before.run_id, before.outcome, before.reason)
    )

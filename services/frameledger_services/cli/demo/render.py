"""Output of `frameledger demo`: a conversation while it grows in SQL, and the servers while they start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from frameledger.frames import AnyFrame, ErrorFrame, FunctionCallInProgressFrame
from frameledger_services.cli.demo.remarks import remark
from frameledger_services.cli.terminal import escape, format_frame, format_message
from frameledger_services.demo.playing import ShownFrame, Written
from frameledger_services.embedded.record import Process, Record, State

WHO = {"user": "bold cyan", "assistant": "green", "tool": "yellow", "thought": "magenta"}
"""Colours by speaker; others are dim."""

SAYING = {
    "InterimTranscriptionFrame": "user",
    "TranscriptionFrame": "user",
    "LLMThoughtTextFrame": "thought",
    "LLMTextFrame": "assistant",
    "TextFrame": "assistant",
    "VisionTextFrame": "assistant",
}
"""The speaker of each frame type that carries speech."""

RECORDED = "frameledger/demo/"
"""Prefix of the sources of the recorded people and programs."""

INDENT = 20
"""Columns before the text: the version and the speaker."""

LEGEND = (
    "Each published frame creates a version of the context: version 70 is the context of a model after 70 frames. "
    "Shown is each version that wrote a message."
)


class Conversation:
    """A conversation on the console: prints new messages, and shows the current speech in a live line below them.

    The live line is shown only on a terminal.
    """

    def __init__(self, console: Console, total: int) -> None:
        """`total`: number of lines of the recording."""
        self._console = console
        self._bar = ProgressBar(total=total, completed=0, width=24)
        self._saying = ("", "")
        self._calls: dict[str, str] = {}
        self._live = Live(console=console, transient=True, refresh_per_second=15)

    def __enter__(self) -> Conversation:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live.start()
        self._print(Text("version  who        ", "dim"), Text("message", "dim"))
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Print a remark of the demo."""
        self._print(Text(f"{'──':>12} "), Text(text, "italic dim"))

    def show(self, shown: ShownFrame) -> None:
        """Show a stored frame and the messages that it wrote."""
        stored, frame = shown.frame, shown.frame.frame
        if isinstance(frame, FunctionCallInProgressFrame):
            self._calls[frame.tool_call_id] = frame.function_name
        for note in filter(None, (shown.note, remark(frame))):
            self.note(note)
        if isinstance(frame, ErrorFrame):
            self._row(stored.version, "error", Text(format_frame.error(frame)), "red")
        if stored.outcome != "applied":
            color = format_frame.OUTCOME_COLORS[stored.outcome]
            self._row(stored.version, stored.outcome, Text(_refused(shown), "dim"), color)
        for written in shown.written:
            self._message(stored.version, written)
        self._listen(frame, applied=stored.outcome == "applied", wrote=bool(shown.written))
        if (stored.source or "").startswith(RECORDED):
            self._bar.update((self._bar.completed or 0) + 1)
        if self._live.is_started:
            self._live.update(self._below(shown))

    def _message(self, version: int, written: Written) -> None:
        who, text = format_message.speaker_and_text(written.message)
        if "role" not in written.message:
            who, text = "thought", text.removeprefix("thought: ")
        text = _report(written.message.get("content")) or text
        for call, name in self._calls.items():
            # Unique ids are long, and each of these functions is called once.
            text = text.replace(f"{call} = ", "").replace(call, name)
        line = Text(text if who in ("user", "assistant", "thought") else escape.one_line(text))
        if written.rewritten:
            line.append("  was IN_PROGRESS", "dim")
        if who not in WHO or text.endswith(": IN_PROGRESS"):
            line.stylize("dim")
        self._row(version, who, line, WHO.get(who, "dim"))

    def _row(self, version: int, who: str, line: Text, style: str) -> None:
        if who not in ("user", "assistant", "thought"):
            # Much of it is JSON, whose beginning suffices.
            line.truncate(max(20, self._console.width - INDENT), overflow="ellipsis")
        self._print(Text.assemble((f"{version:>7}  ", "dim"), (f"{who:<11}", style)), line)

    def _print(self, head: Text, words: Text) -> None:
        """Print all lines of a text beside the head, without trailing spaces."""
        indent = len(head)
        for line in words.wrap(self._console, max(20, self._console.width - indent)):
            line.rstrip()
            self._console.print(Text.assemble(head, line))
            head = Text(" " * indent)

    def _listen(self, frame: AnyFrame, *, applied: bool, wrote: bool) -> None:
        """Update the current speech from a frame that carries it."""
        who = SAYING.get(frame.type)
        if wrote:
            self._saying = ("", "")
        elif who is not None and applied:
            before = self._saying[1] if self._saying[0] == who and who != "user" else ""
            self._saying = (who, before + str(getattr(frame, "text", "")))

    def _below(self, shown: ShownFrame) -> RenderableType:
        who, words = self._saying
        words = escape.one_line(words)
        room = max(20, self._console.width - INDENT - 1)
        # The end of the speech, where it grows.
        while cell_len(words) > room:
            words = words[1:]
        saying = Text.assemble(
            (f"{who:>{INDENT - 2}}  ", "dim"), (f"{words}▌" if who else "", WHO.get(who, ""))
        )
        line = Table.grid(padding=(0, 1))
        line.add_column(width=24)
        line.add_column(no_wrap=True, overflow="ellipsis")
        line.add_row(
            self._bar,
            Text.assemble(
                (f" version {shown.frame.version}", "bold"),
                f"  {shown.messages} messages, {shown.tools} tools  ",
                (f"{shown.frame.type} in SQL after {1000 * shown.delay:.0f} ms", "dim"),
            ),
        )
        return Group("", saying, line)


def starting(processes: Sequence[Process]) -> str:
    """Returns the progress of the starting servers on one line."""
    doing = [
        f"{process.name} {process.word or process.state}"
        for process in processes
        if process.state not in (State.WAITING, State.DONE)
    ]
    return f"Starting the servers: {', '.join(doing)}" if doing else "Starting the servers ..."


def addresses(record: Record) -> str:
    """Returns the addresses of the servers."""
    return ", ".join(f"{process.name} {process.address}" for process in record.processes if process.address)


def _report(content: Any) -> str | None:
    """Returns the text of a message of the async-tool protocol; None for all others."""
    try:
        report = json.loads(content)
    except (TypeError, ValueError):
        return None
    if not isinstance(report, dict) or report.get("type") != "async_tool":
        return None
    result = f": {report['result']}" if "result" in report else ", and the conversation continues"
    return f"{report['tool_call_id']} {report['status']}{result}"


def _refused(shown: ShownFrame) -> str:
    """Returns the content of a frame that was not applied, and the reason."""
    words = format_frame.summary(shown.frame.frame)
    what = f'{shown.frame.type} "{words}"' if words else shown.frame.type
    return f"{what}: {shown.frame.reason or 'stored without an effect'}"

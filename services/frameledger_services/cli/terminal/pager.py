"""Line output through a pager if standard output is a terminal, like git.

The pager is the shell command in `FRAMELEDGER_PAGER`, else `PAGER`, else `less`; `cat` and an empty `PAGER` mean none.
Unless `LESS` is set, less runs with `FRX`: it exits at once if everything fits on the screen, shows colors, and leaves
the text on the screen. To a file or a pipe, lines are written without color and with a constant width.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from frameledger_services.cli.terminal import output

RESET = "\x1b[0m"
STYLES = {
    "": "",
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "magenta": "\x1b[35m",
    "cyan": "\x1b[36m",
    "removed": "\x1b[9;31m",
    "added": "\x1b[1;32m",
}

Piece = tuple[str, str]
"""A text without control characters, and the name of a style in `STYLES`."""


class Page:
    """The output of lines. `width`: columns of a line. `in_color`: whether styles are shown."""

    def __init__(self, file: IO[str], width: int, *, in_color: bool) -> None:
        self.width = width
        self.in_color = in_color
        self._file = file

    def line(self, *pieces: Piece) -> None:
        """Print a line, truncated to the page's width with an ellipsis."""
        left = self.width
        parts: list[str] = []
        for text, style in pieces:
            fitting = fit(text, left)
            left -= cell_len(fitting)
            parts.append(self.styled(fitting, style))
            if fitting != text:
                break
        self._file.write("".join(parts).rstrip() + "\n")

    def whole(self, text: str, style: str) -> None:
        """Print a line without truncation, because it has text to copy."""
        self._file.write(self.styled(text, style) + "\n")

    def console(self) -> Console:
        """Returns a console that prints to this page, for output other than lines."""
        terminal = self.in_color or None
        return Console(
            file=self._file,
            width=self.width,
            force_terminal=terminal,
            no_color=not self.in_color,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def styled(self, text: str, style: str) -> str:
        """Returns the text with the codes of its style if styles are shown."""
        return f"{STYLES[style]}{text}{RESET}" if self.in_color and style and text else text


@contextmanager
def page(preferred: str | None = None) -> Iterator[Page]:
    """Yields the page that prints to the pager or to standard output. `preferred`: the pager of the settings.

    If the user closes the pager before the end, the rest of the block is skipped without an error.
    """
    if not sys.stdout.isatty():
        yield Page(sys.stdout, output.WIDTH_OF_A_FILE, in_color=False)
        return
    width = shutil.get_terminal_size((output.WIDTH_OF_A_FILE, 24)).columns
    in_color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    pager = _pager(preferred)
    process = None if pager is None else _started(pager)
    if process is None or process.stdin is None:
        yield Page(sys.stdout, width, in_color=in_color)
        return
    try:
        # Ctrl-C is for the pager, which keeps running; a broken pipe means that the user closed it.
        with suppress(BrokenPipeError, KeyboardInterrupt):
            yield Page(process.stdin, width, in_color=in_color)
    finally:
        _end(process)


def fit(text: str, width: int) -> str:
    """Returns the text truncated to this many columns, with an ellipsis if it was longer."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def padded(text: str, width: int) -> str:
    """Returns the text truncated or padded to exactly this many columns."""
    cut = fit(text, width)
    return cut + " " * (width - cell_len(cut))


def _pager(preferred: str | None) -> str | None:
    """Returns the pager's shell command, or None for no pager."""
    chosen = preferred or os.environ.get("PAGER")
    if chosen is None:
        chosen = "less" if shutil.which("less") else ""
    return None if chosen.strip() in ("", "cat") else chosen


def _started(pager: str) -> subprocess.Popen[str] | None:
    environment = {"LESS": "FRX", "LV": "-c"} | os.environ
    try:
        return subprocess.Popen(
            pager, shell=True, stdin=subprocess.PIPE, env=environment, encoding="utf-8", errors="replace"
        )
    except OSError:
        return None


def _end(process: subprocess.Popen[str]) -> None:
    """Close the pager's input, and wait until the user closes the pager."""
    while True:
        try:
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    # Writes the rest, for which it waits until the pager has read what is before that.
                    process.stdin.close()
            process.wait()
        except KeyboardInterrupt:
            continue
        return

"""`frameledger logs`: the log files of the processes of `frameledger up`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.text import Text

from frameledger_services.cli.terminal import escape, options, output
from frameledger_services.cli.up.data_dir import DataDir, settings_of

POLL = 0.1
READ = 1 << 20
"""Bytes to read at once, and the maximum that is read from the end of an existing file."""

REMEMBERED = 256
"""Bytes before the end of what was read of a log that are compared, to notice that the log was replaced."""

COLOURS = ("cyan", "green", "magenta", "yellow", "blue")

commands = typer.Typer()


@commands.command()
def logs(
    processes: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROCESS", help="Only these processes, as named by `frameledger status`."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new lines until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=0, metavar="N", help="Number of last lines of each process to start with."
        ),
    ] = 20,
    as_json: options.AsJsonLines = False,
    data_dir: DataDir = None,
) -> None:
    """Print the last log lines of each process that `frameledger up` runs.

    Reads the log files in the data directory, which also has those of an earlier `up`.

    Example: `frameledger logs projector --follow`
    """
    folder = settings_of(data_dir, look_for_running=False).directory / "logs"
    known = _files(folder, None)
    if not known and not follow:
        output.fail(f"There are no logs in {folder}.", "Start everything with: frameledger up")
    files = _files(folder, processes)
    if processes and (unknown := set(processes) - files.keys()):
        output.fail(
            f"There is no log of {', '.join(sorted(unknown))} in {folder}.",
            f"Processes with logs: {', '.join(known) or 'none'}.",
        )
    page = _Page(as_json)
    with output.regular_end_on_ctrl_c(until_ctrl_c=follow):
        for name, file in files.items():
            for line in file.last(lines):
                page.show(name, line)
        while follow:
            for name, file in (_files(folder, processes) | files).items():
                # All lines of a new file are new.
                for line in files.setdefault(name, file).more():
                    page.show(name, line)
            time.sleep(POLL)


class LogFile:
    """A log file that is read while it grows. When it was rotated, or emptied after it was copied, what is unread of
    the rotated file comes first, and then the log from its start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0
        self._before = b""
        """The bytes before `_next`."""

        self._unfinished = b""

    def last(self, count: int) -> list[str]:
        """Returns the last lines, within the last `READ` bytes. `more` continues after them."""
        with suppress(OSError):
            self._next = max(0, self._path.stat().st_size - READ)
        skipped = self._next > 0
        lines = deque[str](maxlen=count)
        lines.extend(self.more()[1 if skipped else 0 :])
        return list(lines)

    def more(self) -> list[str]:
        """Returns the complete lines that were written since the last call."""
        try:
            with self._path.open("rb") as file:
                if not self._continues(file):
                    rest = self._unread_of_rotated()
                    self._unfinished = b"" if rest is None else self._unfinished + rest
                    self._next, self._before = 0, b""
                    file.seek(0)
                read = file.read(READ)
        except OSError:
            return []
        self._next += len(read)
        self._before = (self._before + read)[-REMEMBERED:]
        *lines, self._unfinished = (self._unfinished + read).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def _continues(self, file: BinaryIO) -> bool:
        """Returns whether this is the file that was read, and moves to the first byte that was not."""
        if file.seek(0, os.SEEK_END) < self._next:
            return False
        file.seek(self._next - len(self._before))
        return file.read(len(self._before)) == self._before

    def _unread_of_rotated(self) -> bytes | None:
        """Returns what was not read yet of the file that was rotated; None if the rotated file is another."""
        from frameledger_services.embedded.program import rotated

        with suppress(OSError), rotated(self._path).open("rb") as file:
            if self._continues(file):
                return file.read()
        return None


def _files(folder: Path, names: list[str] | None) -> dict[str, LogFile]:
    files = {path.stem: LogFile(path) for path in sorted(folder.glob("*.log"))}
    return {name: file for name, file in files.items() if not names or name in names}


class _Page:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._console: Console = output.console()
        self._colours: dict[str, str] = {}

    def show(self, name: str, line: str) -> None:
        if self._as_json:
            typer.echo(json.dumps({"process": name, "line": line}))
        else:
            colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
            text = escape.printable(line.expandtabs())
            self._console.print(Text.assemble((f"{name:<10} ", colour), text), soft_wrap=True)
        # The reader of a pipe follows too.
        sys.stdout.flush()

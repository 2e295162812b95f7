"""Follows pages like a reader: saves files, types commands, and compares what is printed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

from tests.bounds import PROGRAM
from tests.support.polling import pause

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S)
LEFT_OUT = "..."
"""In printed output: on a line of its own it stands for any number of lines, within a line for any text."""

SECOND_TERMINAL = "second terminal"
NEEDS = "needs "
"""Commands with this title are typed only if the program is installed."""

ASKS = ("frameledger sql", "frameledger calls list", "frameledger parked")
"""Commands that only read. They are repeated until they print what the page shows, because services take time."""

BETWEEN_ASKS = 0.5
"""Seconds between two repetitions. A command takes about as much CPU time, which the services need too."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page. `title` names the file to save it as, or the terminal to type it into."""

    language: str
    title: str | None
    text: str
    heading: str
    """The heading above it, without `#`."""


def blocks(page: Path) -> list[Block]:
    """Returns the blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0, page
    headings = [(found.start(), found[1]) for found in re.finditer(r"^#+ (.*)$", text, re.M)]
    return [
        Block(
            found["language"],
            found["title"],
            found["text"],
            [name for at, name in headings if at < found.start()][-1],
        )
        for found in FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Returns each command of a console block, with the output that the page shows."""
    for session in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, printed = session.partition("\n")
        while command.endswith("\\"):
            more, _, printed = printed.partition("\n")
            command = f"{command}\n{more}"
        yield command, printed


def fits(printed: str, promised: str) -> bool:
    """Whether output matches a page, apart from trailing spaces and omitted lines."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line.strip() == LEFT_OUT
        else re.escape(line.rstrip()).replace(re.escape(LEFT_OUT), ".*") + r"\n"
        for line in promised.strip("\n").splitlines()
    )
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


class Reader:
    """A reader who follows a page in a folder. Variables that a command exports are set for the next one."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment | {"PGTZ": "UTC", "PGCLIENTENCODING": "UTF8", "LC_ALL": "C.UTF-8"}
        self._terminals: list[subprocess.Popen[bytes]] = []

    def follow(self, found: Iterable[Block]) -> None:
        """Follow the blocks in order. A block of text after a block of code is the output of that code."""
        found = list(found)
        for block, after in zip(found, [*found[1:], None], strict=True):
            promised = after.text if after is not None and after.language == "text" else LEFT_OUT
            match block.language:
                case "text":
                    pass
                case "console":
                    for command, printed in commands(block):
                        self.type(command, printed.strip("\n") or LEFT_OUT)
                case "sh" if block.title == SECOND_TERMINAL:
                    self._open_terminal(block.text)
                case "sh" if (block.title or "").startswith(NEEDS):
                    if shutil.which(block.title.removeprefix(NEEDS)):
                        self.type(block.text)
                case "sh":
                    self.type(block.text)
                case "sql":
                    self.type(f"frameledger sql <<'SQL'\n{block.text}SQL", promised)
                case _ if block.title is not None:
                    file = self.folder / block.title
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(block.text, encoding="utf-8")
                case "python":
                    self.type(f"python - <<'PYTHON'\n{block.text}PYTHON", promised)
                case other:
                    raise AssertionError(f"Nobody knows what to do with a block of {other}: {block.text}")

    def close(self) -> None:
        """Type Ctrl-C in every other terminal, and wait until their programs have ended."""
        for terminal in self._terminals:
            os.killpg(terminal.pid, signal.SIGINT)
        for terminal in self._terminals:
            terminal.wait(PROGRAM)
        self._terminals.clear()

    def type(self, command: str, promised: str = LEFT_OUT) -> None:
        """Type a command, and the page's input after its prompts. Assert that it succeeds and prints what the page
        shows."""
        deadline = time.monotonic() + PROGRAM
        while True:
            succeeded, printed, errors = self._run(command, promised)
            right = succeeded and fits(printed, promised)
            if right or not (succeeded and command.startswith(ASKS) and time.monotonic() < deadline):
                break
            pause(BETWEEN_ASKS)
        assert right, f"$ {command}\n{printed}{errors}\n--- the page says:\n{promised}"

    def _run(self, command: str, promised: str) -> tuple[bool, str, str]:
        """Run a command to its end. Returns whether it succeeded, its output, and its standard error.

        What the page shows after `>` is typed as input, then Ctrl-D once the output up to that point has arrived.
        """
        variables = self.folder.parent / f"{self.folder.name}.variables"
        script = f'[ ! -f "$VARIABLES" ] || . "$VARIABLES"\n{command}\nexport -p > "$VARIABLES"\n'
        typed = "".join(f"{line[2:]}\n" for line in promised.splitlines() if line.startswith("> "))
        until = promised.removesuffix(f"\n{LEFT_OUT}")
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                ["bash", "-e", "-c", script],
                cwd=self.folder,
                env=self.environment | {"VARIABLES": str(variables)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as running,
        ):
            watchdog = Timer(PROGRAM, running.kill)
            watchdog.start()
            running.stdin.write(typed)
            running.stdin.flush()
            printed = ""
            if not typed:
                running.stdin.close()
            for line in running.stdout:
                printed += line
                if typed and not running.stdin.closed and fits(printed, until):
                    running.stdin.close()
            running.wait()
            watchdog.cancel()
            errors.seek(0)
            return running.returncode == 0, printed, errors.read()

    def _open_terminal(self, script: str) -> None:
        log = (self.folder.parent / f"{self.folder.name}.terminal{len(self._terminals)}").open("wb")
        with log:
            self._terminals.append(
                subprocess.Popen(
                    ["bash", "-e", "-c", script],
                    cwd=self.folder,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

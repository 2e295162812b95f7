"""Output of commands: tables and pages on standard output, and one error on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

import typer
from rich.console import Console, RenderableType
from rich.measure import Measurement

WIDTH_OF_A_FILE = 100
"""Columns where standard output is not a terminal."""


WIDEST = 1_000
"""Maximum columns of a line that is printed without wrapping."""


def console() -> Console:
    """Returns a console on the current standard output: in colour on a terminal, unless `NO_COLOR` is set.

    To a file or a pipe it writes plain text of a constant width, so that equal output is equal byte for byte. It prints
    text as it is: brackets are no markup, and `:smile:` is no emoji.
    """
    width = None if sys.stdout.isatty() else WIDTH_OF_A_FILE
    return Console(width=width, markup=False, highlight=False, emoji=False)


def error_console() -> Console:
    """Returns a console on the current standard error, which prints text unchanged."""
    return Console(stderr=True, markup=False, highlight=False, emoji=False)


def print_whole(shown: Console, printed: RenderableType) -> None:
    """Print it at least as wide as its unbreakable parts. A narrower terminal wraps the lines; nothing is truncated."""
    anywhere = shown.options.update_width(WIDEST)
    shown.width = max(shown.width, Measurement.get(shown, anywhere, printed).minimum)
    shown.print(printed)


def print_json(values: Iterable[Any]) -> None:
    """Print dataclasses as JSON Lines, in the format of `json_text`."""
    for value in values:
        print_json_object(asdict(value))


def print_json_object(value: Mapping[str, Any]) -> None:
    """Print a JSON object on one line, in the format of `json_text`."""
    typer.echo(json_text(value))


def json_text(value: object, indent: int | None = None) -> str:
    """Returns a value as JSON, on one line unless `indent` is given: times in ISO 8601 and UTC, ids as text, bytes in
    hexadecimal. It is ASCII without control characters, so every terminal shows it as it is."""
    return json.dumps(value, indent=indent, default=_as_text)


def fail(problem: str, remedy: str, *, code: int = 1) -> NoReturn:
    """Print the problem and the remedy to standard error, and end the command with this exit code."""
    typer.echo(f"{problem}\n{remedy}", err=True)
    raise typer.Exit(code)


def regular_end_on_ctrl_c(*, until_ctrl_c: bool) -> AbstractContextManager[None]:
    """Context manager: with `until_ctrl_c` Ctrl-C ends the block, and the command with exit code 0. Otherwise it breaks
    the command off."""
    return suppress(KeyboardInterrupt) if until_ctrl_c else nullcontext()


def confirm(question: str, otherwise: str) -> None:
    """Ask for confirmation. Ends the command with exit code 1 if the answer is no or standard input is not a
    terminal."""
    if not can_ask():
        fail(
            "Nothing was changed: confirmation is required, and standard input is not a terminal.",
            "Use --yes to confirm.",
        )
    if not typer.confirm(question, err=True):
        fail("Nothing was changed.", otherwise)


def can_ask() -> bool:
    """Returns whether standard input is a terminal."""
    return sys.stdin.isatty()


def _as_text(value: object) -> str:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case UUID():
            return str(value)
        case bytes():
            return value.hex()
        case _:
            raise TypeError(f"no JSON for {type(value).__name__}")

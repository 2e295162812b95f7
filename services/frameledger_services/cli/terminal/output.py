"""What commands print: tables and pages for people on standard output, and one error on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

import typer
from rich.console import Console

WIDTH_OF_A_FILE = 100
"""Columns where no terminal says how wide it is."""


def console() -> Console:
    """Standard output as it is now, for people: in colour on a terminal, unless `NO_COLOR` is set.

    Into a file or a pipe it writes plain text of a constant width, so that what is printed twice is the same.
    """
    width = None if sys.stdout.isatty() else WIDTH_OF_A_FILE
    return Console(width=width, highlight=False, emoji=False)


def print_json(values: Iterable[Any]) -> None:
    """Print dataclasses as JSON objects, one a line, as `json_text` has them."""
    for one in values:
        print_json_object(asdict(one))


def print_json_object(value: Mapping[str, Any]) -> None:
    """Print a JSON object on a line of its own, as `json_text` has it."""
    typer.echo(json_text(value))


def json_text(value: object) -> str:
    """A value as JSON, without a line break; times as ISO 8601 in UTC, ids as text, bytes in hexadecimal."""
    return json.dumps(value, default=_as_text)


def fail(problem: str, remedy: str) -> NoReturn:
    """End the command with exit code 1, saying what is wrong and what can be done about it."""
    typer.echo(f"{problem}\n{remedy}", err=True)
    raise typer.Exit(1)


def confirm(question: str, otherwise: str) -> None:
    """Ask a person; end the command with exit code 1 on a no, or if standard input is no terminal."""
    if not can_ask():
        fail(
            "Nothing was changed: standard input is no terminal, so nobody can be asked.",
            "Say --yes if it is meant.",
        )
    if not typer.confirm(question, err=True):
        fail("Nothing was changed.", otherwise)


def can_ask() -> bool:
    """Whether standard input is a terminal."""
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

"""Commands that are imported when they are called: until then a command is its name, one line, and where it is.

Each module of commands brings what it works with, and `frameledger --version` needs none of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from frameledger_services import extras

STYLE: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_show_locals": False}
"""How every command prints. A traceback with local variables would print conversations."""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is not imported yet."""

    module: str
    """The module of `cli` whose Typer app `commands` has it."""

    line: str
    """The first paragraph of its help."""

    extras: tuple[str, ...] = ()
    """The extras that it needs beside `cli`."""


def group_of(titled: Mapping[str, Mapping[str, LazyCommand]]) -> type[TyperGroup]:
    """A class of groups, as Typer wants one, with these commands beneath their titles, in their order."""
    table = {name: lazily for commands in titled.values() for name, lazily in commands.items()}

    class Group(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = {
                name: TyperCommand(name, help=lazily.line, rich_help_panel=title)
                for title, commands in titled.items()
                for name, lazily in commands.items()
            }

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            # Who only lists the commands, for help or for a shell that completes, does not come by here.
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and imported(name or "", table), rest

    return Group


def imported(name: str, table: Mapping[str, LazyCommand]) -> Any:
    """The command itself. Raises `MissingExtraError` if it needs more than is installed."""
    extras.check(*table[name].extras)
    app = typer.Typer(**STYLE)
    app.add_typer(import_module(f"frameledger_services.cli.{table[name].module}").commands)
    return get_group(app).commands[name]

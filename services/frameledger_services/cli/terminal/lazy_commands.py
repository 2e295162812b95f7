"""Commands that are imported when they are called. Until then a command is a name, a line of help and a module.

The modules of commands import their dependencies, and `frameledger --version` needs none of those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from frameledger.surrogates import has_half
from frameledger_services import extras

STYLE: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_show_locals": False}
"""Options of every Typer app. Tracebacks omit local variables, which would print conversations."""

LARGEST_NUMBER = 10**18
"""PostgreSQL takes larger ones, but no sum with them."""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is not imported yet."""

    module: str
    """The module in `cli` whose Typer app `commands` has the command."""

    line: str
    """The first paragraph of its help."""

    extras: tuple[str, ...] = ()
    """The extras that it needs in addition to `cli`."""


def group_of(titled: Mapping[str, Mapping[str, LazyCommand]]) -> type[TyperGroup]:
    """Returns a Typer group class with these commands under their titles, in this order."""
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
            # Help and shell completion only list the commands and do not call this.
            name, command, rest = super().resolve_command(ctx, args)
            return name, command and imported(name or "", table), rest

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:
                # Typer reads values with pydantic, which puts this before the reason.
                error.message = error.message.removeprefix("Value error, ")
                raise

    return Group


def imported(name: str, table: Mapping[str, LazyCommand]) -> Any:
    """Imports and returns the command. Raises `MissingExtraError` if it needs an extra that is not installed."""
    extras.check(*table[name].extras)
    app = typer.Typer(**STYLE)
    app.add_typer(import_module(f"frameledger_services.cli.{table[name].module}").commands)
    command = get_group(app).commands[name]
    _check_values(command)
    return command


def _check_values(command: Any) -> None:
    """Have every argument and option of a command, and of its subcommands, refuse text and numbers that no server
    takes, and every argument an empty text. Paths may have any bytes."""
    for parameter in command.params:
        parameter.callback = partial(_check_value, parameter.callback)
    for inner in getattr(command, "commands", {}).values():
        _check_values(inner)


def _check_value(checked_by: Callable[..., Any] | None, ctx: Any, parameter: Any, value: Any) -> Any:
    values = value if isinstance(value, list | tuple) else [value]
    for element in values:
        # Bytes of the command line that are not text in the locale's encoding are surrogates.
        if isinstance(element, str) and has_half(element):
            raise typer.BadParameter(f"{element!r} is not text", ctx=ctx, param=parameter)
        if isinstance(element, int) and element > LARGEST_NUMBER:
            raise typer.BadParameter(f"the largest number is {LARGEST_NUMBER:,}", ctx=ctx, param=parameter)
    checked = value if checked_by is None else checked_by(ctx, parameter, value)
    # Last, because a callback that refuses it too says more. An empty argument is mostly a variable that is not set.
    if parameter.param_type_name == "argument" and "" in values:
        raise typer.BadParameter("it is empty", ctx=ctx, param=parameter)
    return checked

"""`frameledger fork`: a new conversation that starts from a version of another."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from frameledger_services.cli.terminal import backend, escape, moment, options, output, suggestion
from frameledger_services.client import Client, Fork
from frameledger_services.settings import Settings

SOURCE = "frameledger/fork"

commands = typer.Typer()


@commands.command()
def fork(
    context: options.Context,
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="Id of the new conversation.", callback=options.context_id)
    ],
    at: moment.Option = None,
    run: Annotated[bool, typer.Option("--run", help="Request a run in the new conversation.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Start a new conversation from an earlier version of another: its messages, tools, tool choice and settings at
    that version.

    The original conversation does not change. Unfinished turns and answers are not copied, and calls that were running
    are cancelled in the new conversation. With a version in --at, repeating the command publishes nothing. The SQL
    view `forks` lists the forks of each conversation.

    Example: `frameledger fork ctx-1 ctx-1-other --at 12 --run`
    """
    with backend.exit_on_error():
        new_fork = asyncio.run(_fork(Settings.from_env(), context, new, at, run))
    origin = new_fork.origin
    if as_json:
        result = {
            "context_id": new_fork.context_id,
            "version": new_fork.version,
            "forked_from": origin.model_dump(),
            "repeated": new_fork.repeated,
        }
        output.print_json_object(result)
        return
    name = escape.printable(new_fork.context_id)
    which = f"version {origin.version} of {escape.printable(origin.context_id)}"
    again = " It existed already." if new_fork.repeated else ""
    typer.echo(f"{name} starts from {which}.{again}")
    show, chat = (suggestion.command(one, new_fork.context_id) for one in ("show", "chat"))
    typer.echo(f"Inspect it: {show}. Chat: {chat}.")


async def _fork(settings: Settings, context: str, new: str, at: moment.At | None, run: bool) -> Fork:
    original = await backend.query(settings, moment.find, context, at)
    async with Client(settings, source=SOURCE) as client:
        return await client.fork(context, new, version=original.version, run=run)

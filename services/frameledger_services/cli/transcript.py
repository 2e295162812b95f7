"""`frameledger transcript`: who said what in a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from frameledger_services.cli.terminal import backend, moment, options, output, pager, render_context
from frameledger_services.cli.terminal.render_context import LAST, LONG
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import moments
from frameledger_services.store.moments import Moment, TranscriptLine

commands = typer.Typer()

_COLOURS = {"user": "green", "assistant": "cyan", "tool": "yellow"}


@commands.command()
def transcript(
    context: options.Context,
    at: moment.Option = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every line of a long conversation instead of the last ones.")
    ] = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Show who said what in a conversation, and when.

    A star marks messages that no run has read yet. Times are broker times in UTC. The SQL view `transcript` has the
    same lines.

    Example: `frameledger transcript ctx-1 --at 2026-05-01T12:00:00Z`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        conversation, lines = asyncio.run(backend.query(settings, _read, context, at))
    if as_json:
        output.print_json(lines)
        return
    with pager.page(settings.pager) as page:
        _print(page.console(), conversation, lines, everything)


async def _read(
    connection: Connection, context_id: str, at: moment.At | None
) -> tuple[Moment, list[TranscriptLine]]:
    conversation = await moment.find(connection, context_id, at)
    return conversation, await moments.transcript(connection, context_id, conversation.version)


def _print(console: Console, conversation: Moment, lines: Sequence[TranscriptLine], everything: bool) -> None:
    console.print(
        render_context.text(
            render_context.title(conversation.context_id, conversation.version, len(lines)), "bold"
        )
    )
    if len(lines) > LONG and not everything:
        console.print(render_context.not_shown(len(lines) - LAST, "messages"))
        lines = lines[-LAST:]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(max_width=16, overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        who = line.who or ""
        table.add_row(
            f"{line.logged_at.astimezone(UTC):%H:%M:%SZ}",
            render_context.text(who, _COLOURS.get(who, "")),
            "*" if line.new else " ",
            render_context.text(line.text or ""),
        )
    console.print(table)
    if conversation.version == conversation.newest and conversation.parked_version is not None:
        console.print(render_context.text(f"Parked since version {conversation.parked_version}.", "red"))

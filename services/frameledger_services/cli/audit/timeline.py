"""`frameledger timeline`: every frame of a conversation with its effect and outcome."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from frameledger_services.cli.audit import trace_links
from frameledger_services.cli.audit.render_timeline import Lines
from frameledger_services.cli.audit.timeline_entries import as_object, folded
from frameledger_services.cli.terminal import backend, moment, options, output, pager
from frameledger_services.settings import Settings
from frameledger_services.store import history

commands = typer.Typer()


@commands.command()
def timeline(
    context: options.Context,
    first: Annotated[
        int | None, typer.Option("--from", min=1, metavar="VERSION", help="First version to show.")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=1, metavar="VERSION", help="Last version to show.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print a line for each frame of a streamed text too.")
    ] = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Show every frame of a conversation: its time, its effect on the context, and its outcome.

    Frames of one streamed text are one line with their number and the beginning of the text. Times are broker times in
    UTC. Effects name messages by the positions that `show` prints; `why` explains a message. The SQL function
    `timeline_of` returns the same. With FRAMELEDGER_TRACE_URL, the address of a trace is printed below its first frame.

    Example: `frameledger timeline ctx-1 --from 40 --to 60`
    """
    moment.check_range(first, last, "--to")
    with backend.exit_on_error():
        asyncio.run(_timeline(Settings.from_env(), context, first, last, everything, as_json))


async def _timeline(
    settings: Settings, context: str, first: int | None, last: int | None, everything: bool, as_json: bool
) -> None:
    async with backend.connection(settings) as connection:
        conversation = await moment.find(connection, context, None)
        if first is not None and first > conversation.newest:
            output.fail(
                f"The conversation {context!r} has no version {first}.", f"It has 1 to {conversation.newest}."
            )
        # Closed before the connection, which waits for a running query.
        async with (
            aclosing(history.timeline(connection, context, first, last)) as frames,
            aclosing(folded(frames, everything=everything)) as entries,
        ):
            if as_json:
                async for entry in entries:
                    output.print_json_object(as_object(entry))
                return
            with pager.page(settings.pager) as page:
                traces = await trace_links.begun(
                    connection, context, first or 1, last or conversation.newest, settings.trace_url
                )
                lines = Lines(page, len(str(conversation.newest)), traces)
                lines.title(conversation.context_id, conversation.newest)
                async for entry in entries:
                    lines.entry(entry)

"""`frameledger show`: the context of a conversation, at its newest or an earlier version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC
from typing import Annotated, Any

import typer
from psycopg import AsyncConnection

from frameledger_services.cli.terminal import backend, format_message, moment, options, pager, render_context
from frameledger_services.settings import Settings
from frameledger_services.store import moments
from frameledger_services.store.moments import ContextAt, Moment

commands = typer.Typer()


@commands.command()
def show(
    context: options.Context,
    at: moment.Option = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every message of a long context instead of the last ones.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show the context that a model receives: messages, tools, tool choice and settings.

    Without --at, shows the newest version and what the conversation is waiting for. The number before a message is
    its position; `frameledger why` takes it.

    Example: `frameledger show ctx-1 --at 12`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        found, shown = asyncio.run(backend.query(settings, _read, context, at))
    if as_json:
        typer.echo(json.dumps(_as_json(found, shown)))
        return
    title = render_context.title(found.context_id, found.version, len(shown.messages))
    if found.logged_at is not None:
        title += f", as of {found.logged_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    rows = list(zip(shown.positions, shown.messages, strict=True))
    with pager.page(settings.pager) as page:
        render_context.show(title, rows, _details(found, shown), page.console(), everything=everything)


async def _read(
    connection: AsyncConnection[Any], context_id: str, at: moment.At | None
) -> tuple[Moment, ContextAt]:
    # Two statements without a transaction: a version never changes.
    found = await moment.find(connection, context_id, at)
    return found, await moments.context_at(connection, context_id, found.version)


def _details(found: Moment, shown: ContextAt) -> Iterator[tuple[str, str]]:
    yield from format_message.request_terms(shown.tools, shown.tool_choice, shown.settings)
    if found.version < found.newest:
        yield "later", f"{found.newest - found.version:,} more frames, up to version {found.newest}"
        return
    if found.recording:
        yield "recording", "its runs and calls are not executed"
    if found.mirror is not None:
        yield "mirror", format_message.kept_by(found.mirror)
    if found.ended:
        yield "ended", "starts no runs or calls until it is reopened"
    if found.open_run_id is not None:
        yield "open run", found.open_run_id
    if found.open_call_count:
        yield "open calls", str(found.open_call_count)
    if found.parked_version is not None:
        yield "parked", f"since version {found.parked_version}, not folded: {found.parked_error}"


def _as_json(found: Moment, shown: ContextAt) -> dict[str, Any]:
    return {
        "context_id": found.context_id,
        "version": found.version,
        "newest": found.newest,
        "logged_at": None if found.logged_at is None else found.logged_at.isoformat(),
        "messages": shown.messages,
        "positions": shown.positions,
        "tools": shown.tools,
        "tool_choice": shown.tool_choice,
        "settings": shown.settings,
        "parked_since": found.parked_version,
    }

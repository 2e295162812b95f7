"""`frameledger show`: the context of a conversation, at its newest or an earlier version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC
from typing import Annotated, Any

import typer

from frameledger_services.cli.terminal import backend, format_message, moment, options, pager, render_context
from frameledger_services.database_types import Connection
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
        conversation, shown = asyncio.run(backend.query(settings, _read, context, at))
    if as_json:
        typer.echo(json.dumps(_as_json(conversation, shown)))
        return
    title = render_context.title(conversation.context_id, conversation.version, len(shown.messages))
    if conversation.logged_at is not None:
        title += f", as of {conversation.logged_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    rows = list(zip(shown.positions, shown.messages, strict=True))
    with pager.page(settings.pager) as page:
        render_context.show(title, rows, _details(conversation, shown), page.console(), everything=everything)


async def _read(connection: Connection, context_id: str, at: moment.At | None) -> tuple[Moment, ContextAt]:
    # Two statements without a transaction: a version never changes.
    conversation = await moment.find(connection, context_id, at)
    return conversation, await moments.context_at(connection, context_id, conversation.version)


def _details(conversation: Moment, shown: ContextAt) -> Iterator[tuple[str, str]]:
    yield from format_message.request_terms(shown.tools, shown.tool_choice, shown.settings)
    if conversation.version < conversation.newest:
        yield (
            "later",
            f"{conversation.newest - conversation.version:,} more frames, up to version {conversation.newest}",
        )
        return
    if conversation.recording:
        yield "recording", "its runs and calls are not executed"
    if conversation.mirror is not None:
        yield "mirror", format_message.kept_by(conversation.mirror)
    if conversation.ended:
        yield "ended", "starts no runs or calls until it is reopened"
    if conversation.open_run_id is not None:
        yield "open run", conversation.open_run_id
    if conversation.open_call_count:
        yield "open calls", str(conversation.open_call_count)
    if conversation.parked_version is not None:
        yield (
            "parked",
            f"since version {conversation.parked_version}, not folded: {conversation.parked_error}",
        )


def _as_json(conversation: Moment, shown: ContextAt) -> dict[str, Any]:
    return {
        "context_id": conversation.context_id,
        "version": conversation.version,
        "newest": conversation.newest,
        "logged_at": None if conversation.logged_at is None else conversation.logged_at.isoformat(),
        "messages": shown.messages,
        "positions": shown.positions,
        "tools": shown.tools,
        "tool_choice": shown.tool_choice,
        "settings": shown.settings,
        "parked_since": conversation.parked_version,
    }

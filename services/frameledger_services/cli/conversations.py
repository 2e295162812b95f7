"""`frameledger list` and `search`: conversations by last activity or by the text of their messages."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal import backend, escape, options, output, suggestion
from frameledger_services.settings import Settings
from frameledger_services.store import conversations

BEFORE = 30
"""Characters of a message that are shown before the match."""

commands = typer.Typer()


@commands.command("list")
def list_conversations(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number to list.")
    ] = 20,
    skip: Annotated[int, typer.Option(min=0, metavar="N", help="Number to skip first.")] = 0,
    experiments: options.Experiments = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """List conversations, most recently active first.

    The status of a conversation is quiet, answering, calling (a function), recording, ended, parked or experiment.

    Example: `frameledger list --limit 50`
    """
    with backend.exit_on_error():
        # One more than is shown tells whether there are more.
        listed = asyncio.run(
            backend.query(
                Settings.from_env(), conversations.last_active, limit + 1, skip, experiments=experiments
            )
        )
    if as_json:
        output.print_json(listed[:limit])
        return
    if not listed:
        typer.echo("There is no conversation." if not skip else f"There are no more than {skip}.")
        return
    table = _table("last frame (UTC)", "context", "frames", "status", "last words")
    table.columns[2].justify = "right"
    for conversation in listed[:limit]:
        words = escape.one_line(conversation.last_words or "")
        name = Text(escape.printable(conversation.context_id), overflow="fold")
        table.add_row(
            _time(conversation.last_at), name, f"{conversation.version:,}", conversation.status, words
        )
    output.console().print(table)
    if len(listed) > limit:
        again = ["--limit", str(limit), "--skip", str(skip + limit)]
        typer.echo(f"More: {suggestion.command('list', options=again + _included(experiments))}")


@commands.command()
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text to find, ignoring case.")],
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of messages.")
    ] = 20,
    replaced: Annotated[
        bool,
        typer.Option("--all", help="Include messages that were replaced and are no longer in the context."),
    ] = False,
    experiments: options.Experiments = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Search the messages of all conversations, newest first.

    Searches the text of each message; of one without text, the function calls that it makes.

    Example: `frameledger search "late arrival"`
    """
    if not text.strip() or "\x00" in text:
        raise typer.BadParameter("the text to find is empty or has a NUL", param_hint="TEXT")
    with backend.exit_on_error():
        matches = asyncio.run(
            backend.query(
                Settings.from_env(),
                conversations.search,
                text,
                limit + 1,
                replaced=replaced,
                experiments=experiments,
            )
        )
    if as_json:
        output.print_json(matches[:limit])
        return
    if not matches:
        typer.echo(
            "No message contains that."
            if replaced
            else "No message contains that. Use --all to search replaced messages too."
        )
        return
    table = _table("logged (UTC)", "context", "version", "who", "message")
    table.columns[2].justify = "right"
    for match in matches[:limit]:
        name = Text(escape.printable(match.context_id), overflow="fold")
        who = escape.one_line(match.who or "") + ("" if match.current else ", replaced")
        table.add_row(_time(match.logged_at), name, f"{match.version:,}", who, _around(match.text, text))
    output.console().print(table)
    if len(matches) > limit:
        again = ["--limit", str(10 * limit), *(["--all"] if replaced else [])]
        typer.echo(
            f"There are more: {suggestion.command('search', text, options=again + _included(experiments))}"
        )


def _table(*headings: str) -> Table:
    # Expanded, so that the last column takes the remaining width and a long text does not shrink the ids.
    table = Table(box=None, pad_edge=False, expand=True)
    for heading in headings[:-1]:
        table.add_column(
            heading, no_wrap=heading != "context", max_width=36 if heading == "context" else None
        )
    table.add_column(headings[-1], no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _included(experiments: bool) -> list[str]:
    return ["--experiments"] if experiments else []


def _around(text: str, searched: str) -> Text:
    """Returns the text around the match on one line, with the match in bold."""
    at = max(text.lower().find(searched.lower()), 0)
    start = max(at - BEFORE, 0)
    shown = Text(("…" if start else "") + escape.one_line(text[start:]))
    shown.highlight_words([escape.one_line(searched)], "bold", case_sensitive=False)
    return shown


def _time(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

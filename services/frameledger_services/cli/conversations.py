"""`frameledger list` and `search`: conversations, by when they were last active or by what was said in them."""

from __future__ import annotations

import asyncio
import shlex
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from frameledger_services.cli.terminal import backend, escape, options, output
from frameledger_services.settings import Settings
from frameledger_services.store import conversations

BEFORE = 30
"""Characters of a message that are shown before the text that was searched for."""

commands = typer.Typer()


@commands.command("list")
def list_conversations(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many.")] = 20,
    skip: Annotated[int, typer.Option(min=0, metavar="N", help="Leave out so many at the beginning.")] = 0,
    experiments: options.Experiments = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """List conversations, the last active first.

    Each has a status: quiet, answering, calling (a function), recording, ended, or parked; or it is an experiment.

    Example: `frameledger list --limit 50`
    """
    with backend.exit_on_error():
        # One more than is shown: whether there are more.
        found = asyncio.run(
            backend.query(
                Settings.from_env(), conversations.last_active, limit + 1, skip, experiments=experiments
            )
        )
    if as_json:
        output.print_json(found[:limit])
        return
    if not found:
        typer.echo("There is no conversation." if not skip else f"There are no more than {skip}.")
        return
    table = _table("last frame (UTC)", "context", "frames", "status", "last words")
    table.columns[2].justify = "right"
    for one in found[:limit]:
        words = escape.one_line(one.last_words or "")
        name = Text(escape.printable(one.context_id), overflow="fold")
        table.add_row(_time(one.last_at), name, f"{one.version:,}", one.status, words)
    output.console().print(table)
    if len(found) > limit:
        typer.echo(f"More: frameledger list --limit {limit} --skip {skip + limit}")


@commands.command()
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What was said: letters in any case.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="How many at most.")] = 20,
    replaced: Annotated[
        bool, typer.Option("--all", help="Also messages that their context no longer has.")
    ] = False,
    experiments: options.Experiments = False,
    as_json: options.AsJsonLines = False,
) -> None:
    """Find messages that contain a text, in all conversations, the newest first.

    Searched is what a person reads of a message: its text, or the calls that it makes.

    Example: `frameledger search "late arrival"`
    """
    if not text.strip() or "\x00" in text:
        raise typer.BadParameter("say what to look for", param_hint="TEXT")
    with backend.exit_on_error():
        found = asyncio.run(
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
        output.print_json(found[:limit])
        return
    if not found:
        typer.echo(
            "No message contains that."
            if replaced
            else "No message contains that; --all looks at older ones."
        )
        return
    table = _table("logged (UTC)", "context", "version", "who", "message")
    table.columns[2].justify = "right"
    for one in found[:limit]:
        name = Text(escape.printable(one.context_id), overflow="fold")
        who = escape.one_line(one.who or "") + ("" if one.current else ", replaced")
        table.add_row(_time(one.logged_at), name, f"{one.version:,}", who, _around(one.text, text))
    output.console().print(table)
    if len(found) > limit:
        typer.echo(f"There are more: frameledger search {shlex.quote(text)} --limit {10 * limit}")


def _table(*headings: str) -> Table:
    # Expanded, so that the last column has what the others leave: a long text would push the contexts away.
    table = Table(box=None, pad_edge=False, expand=True)
    for heading in headings[:-1]:
        table.add_column(
            heading, no_wrap=heading != "context", max_width=36 if heading == "context" else None
        )
    table.add_column(headings[-1], no_wrap=True, overflow="ellipsis", ratio=1)
    return table


def _around(text: str, searched: str) -> Text:
    """The text from a little before what was searched for, on one line, with that in bold."""
    at = max(text.lower().find(searched.lower()), 0)
    start = max(at - BEFORE, 0)
    shown = Text(("…" if start else "") + escape.one_line(text[start:]))
    shown.highlight_words([escape.one_line(searched)], "bold", case_sensitive=False)
    return shown


def _time(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

"""`frameledger dlq`: dead letters, the records that are not valid frames, listed and published again."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC
from typing import Annotated

import typer
from rich.table import Table

from frameledger_services.cli.repair import positions, rejected_json, render_rejected
from frameledger_services.cli.repair import retry as republish
from frameledger_services.cli.terminal import backend, options, output, render_context
from frameledger_services.settings import Settings
from frameledger_services.store import dead_letters

commands = typer.Typer(name="dlq", no_args_is_help=True)


@commands.callback()
def about() -> None:
    """Inspect and republish dead letters: records that are not valid frames, kept byte for byte."""


Where = Annotated[
    str, typer.Argument(metavar="PARTITION:OFFSET", help="Position of the record, as `dlq list` prints it.")
]


@commands.command("list")
def list_(
    limit: Annotated[
        int, typer.Option("--lines", "-n", min=1, metavar="N", help="Maximum number to list.")
    ] = 50,
    as_json: options.AsJsonLines = False,
) -> None:
    """List dead letters, newest first.

    Example: `frameledger dlq list --json`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        rejected = asyncio.run(backend.query(settings, dead_letters.newest, positions.topic(settings), limit))
    if as_json:
        for letter in rejected:
            typer.echo(json.dumps(rejected_json.summary(letter)))
        return
    if not rejected:
        typer.echo("There are no dead letters.")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("where", no_wrap=True)
    table.add_column("set aside (UTC)", no_wrap=True)
    table.add_column("context", overflow="fold", max_width=24)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("retried", no_wrap=True)
    table.add_column("error", overflow="fold")
    for letter in rejected:
        table.add_row(
            positions.written(letter),
            f"{letter.recorded_at.astimezone(UTC):%m-%d %H:%M:%SZ}",
            render_context.text(letter.context_id or "-"),
            "-" if letter.value is None else str(len(letter.value)),
            "" if letter.retried_at is None else f"{letter.retried_at.astimezone(UTC):%m-%d %H:%MZ}",
            render_context.text(f"{letter.code}: {letter.error}"),
        )
    output.console().print(table)


@commands.command()
def show(
    where: Where,
    raw: Annotated[bool, typer.Option("--raw", help="Write only the value, byte for byte.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Show a dead letter with its key, value and headers, with control characters escaped.

    Example: `frameledger dlq show 3:118 --raw > value.json`
    """
    with backend.exit_on_error():
        settings = Settings.from_env()
        place = positions.parse(settings, where)
        rejected = asyncio.run(backend.query(settings, dead_letters.at, [place]))
    if not rejected:
        positions.refuse_missing(place)
    (letter,) = rejected
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(letter.value or b"")
        sys.stdout.buffer.flush()
    elif as_json:
        typer.echo(json.dumps(rejected_json.in_full(letter)))
    else:
        for line in render_rejected.lines(letter):
            typer.echo(line)


@commands.command()
def retry(
    where: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARTITION:OFFSET", help="Positions of the records.", show_default=False),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that were not retried yet, oldest first.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Include records that were already retried.")
    ] = False,
) -> None:
    """Publish dead letters again unchanged, after the cause was fixed.

    Their bytes do not change, so a record that is not JSON becomes a dead letter again. A record is retried only once
    unless you use --again. A frame that is published twice counts once.

    Example: `frameledger dlq retry 3:118`
    """
    if bool(where) == everything:
        raise typer.BadParameter("give positions of records, or --all", param_hint="PARTITION:OFFSET")
    with backend.exit_on_error(), backend.change():
        settings = Settings.from_env()
        places = [positions.parse(settings, one) for one in where or ()]
        result = asyncio.run(republish.retry(settings, places, again=again))
    for one, place in result.published:
        typer.echo(f"Published {positions.written(one)} again at {place.partition}:{place.offset}.")
    for one, why in result.left:
        typer.echo(f"{positions.written(one)} was not published: {why}", err=True)
    if not result.published and not result.left:
        typer.echo("There is nothing to retry.")
    if result.left:
        raise typer.Exit(1)

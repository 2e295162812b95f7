"""`frameledger recover`: comparison of the log with the tables, and recovery after the log lost records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Console

from frameledger_services import database
from frameledger_services.cli.repair import render_recovery
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.database_types import Connection
from frameledger_services.event_log import reader
from frameledger_services.event_log.producer import Producer
from frameledger_services.recovery import recover as recovering
from frameledger_services.recovery.recover import Examination
from frameledger_services.recovery.republish import Republished, republish
from frameledger_services.settings import Settings
from frameledger_services.store import schema

commands = typer.Typer()


@commands.command()
def recover(
    apply: Annotated[bool, typer.Option("--apply", help="Recover. Without it, only compare.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --apply: do not ask for confirmation.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Recover after the frames topic lost records or was recreated.

    Use it after Kafka lost its newest records (for example in a power cut), records expired before they were stored, or
    the topic was deleted and recreated. Without --apply it compares log and tables, prints what it would do, and exits
    with code 1 if there is anything to do. Stored frames are kept. With --apply it starts the topic's next generation:
    each partition is read from the offset at which log and tables differ, and frames that the log lost are published
    again; the copies have no effect. Projectors can keep running. If it is interrupted, run it again. Frames that
    exceed the topic's current size limit are listed, with exit code 1; all others are published.

    Example: `frameledger recover --apply`
    """
    if yes and not apply:
        raise typer.BadParameter("use it with --apply", param_hint="--yes")
    with backend.exit_on_error(TimeoutError), backend.change():
        _recover(Settings.from_env(), apply=apply, yes=yes, as_json=as_json)


def _recover(settings: Settings, *, apply: bool, yes: bool, as_json: bool) -> None:
    console = output.error_console()
    with console.status("Comparing the log with the tables ..."):
        examined = asyncio.run(_with_connection(settings, recovering.examine))
    if not as_json:
        render_recovery.show(examined)
    if examined.is_fine or not apply:
        if as_json:
            typer.echo(json.dumps(render_recovery.as_json(examined), indent=2))
        if not examined.is_fine:
            raise typer.Exit(1)
        return
    if not yes:
        output.confirm("Apply this?", "`frameledger recover` compares again.")
    generation, republished = asyncio.run(_apply(settings, examined, console))
    if as_json:
        applied = {"generation": generation} | render_recovery.done_as_json(republished)
        typer.echo(json.dumps(render_recovery.as_json(examined) | {"applied": applied}, indent=2))
    else:
        render_recovery.show_done(examined, generation, republished)
    if republished.too_large:
        output.fail(*render_recovery.too_large(examined, republished))


async def _with_connection(settings: Settings, function: Callable[..., Any]) -> Any:
    # The transaction idles while the broker acknowledges republished frames.
    session = {**database.UNLIMITED, "idle_in_transaction_session_timeout": "0"}
    async with await database.connect(
        settings, "frameledger recover", session, role="frameledger_operator"
    ) as connection:
        await schema.check(connection)
        return await function(settings, connection)


async def _apply(
    settings: Settings, examined: Examination, console: Console
) -> tuple[int | None, Republished]:
    topic = examined.topic.name

    async def work(_: Settings, connection: Connection) -> tuple[int | None, Republished]:
        generation = examined.generation
        if examined.needs_generation:
            generation = await recovering.begin_generation(connection, examined)
        expected = sum(examined.to_republish.values())
        async with Producer(settings, name="frameledger-recover") as producer:
            with _progress(console, expected) as report:
                publish, reads = (
                    partial(producer.publish, topic),
                    partial(reader.partition_records, settings, topic),
                )
                republished = await republish(connection, topic, publish, reads, report)
        return generation, republished

    outcome: tuple[int | None, Republished] = await _with_connection(settings, work)
    return outcome


@contextmanager
def _progress(console: Console, expected: int) -> Iterator[Callable[[int], None]]:
    """Shows on a terminal how many frames were published again."""
    with console.status(_so_far(0, expected)) as status:
        yield lambda count: status.update(_so_far(count, expected))


def _so_far(count: int, expected: int) -> str:
    return f"Publishing frames again: {count:,} of {expected:,} ..."

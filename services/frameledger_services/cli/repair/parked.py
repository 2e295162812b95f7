"""`frameledger parked` and `unpark`: conversations with a frame that could not be folded, and their resumption."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC
from typing import Annotated

import typer
from rich.table import Table

from frameledger.stored import StoredStateError
from frameledger_services import database
from frameledger_services.cli.terminal import backend, options, output, render_context, suggestion
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.row_sender import RowSender
from frameledger_services.projector.stored_heads import NewerHeadError
from frameledger_services.recovery.unpark import ContradictoryHeadError, NotParkedError, Unparked
from frameledger_services.recovery.unpark import unpark as unpark_context
from frameledger_services.settings import Settings
from frameledger_services.store import schema
from frameledger_services.store.parked import conversations as parked_conversations

LOCK_TIMEOUT = "10s"

SESSION = {**database.BESIDE_PROJECTORS, "lock_timeout": LOCK_TIMEOUT}

commands = typer.Typer()


@commands.command()
def parked(
    as_json: options.AsJsonLines = False,
) -> None:
    """List parked conversations: a frame could not be folded, so later frames are stored but not applied.

    Example: `frameledger parked --json`
    """
    with backend.exit_on_error():
        conversations = asyncio.run(backend.query(Settings.from_env(), parked_conversations))
    if as_json:
        output.print_json(conversations)
        return
    if not conversations:
        typer.echo("No conversation is parked.")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("context", overflow="fold")
    table.add_column("since version", justify="right", no_wrap=True)
    table.add_column("frames", justify="right", no_wrap=True)
    table.add_column("parked at (UTC)", no_wrap=True)
    table.add_column("error", overflow="fold")
    for conversation in conversations:
        at = f"{conversation.parked_at.astimezone(UTC):%Y-%m-%d %H:%MZ}"
        table.add_row(
            render_context.text(conversation.context_id),
            str(conversation.since),
            str(conversation.waiting),
            at,
            render_context.text(conversation.error),
        )
    console = output.console()
    console.print(table)
    for conversation in conversations:
        typer.echo(f"After fixing the cause: {suggestion.command('unpark', conversation.context_id)}")


@commands.command()
def unpark(
    context: options.Context,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Reason, recorded with every frame.")] = "unparked",
    as_json: options.AsJson = False,
) -> None:
    """Resume a parked conversation: fold its stored frames in order, after the cause is fixed.

    Projectors can keep running. Runs and calls that the frames request are dispatched if they are younger than five
    minutes, and closed otherwise. If a frame still cannot be folded, the conversation stays parked from that frame on
    with the new error, and the exit code is 1.

    Example: `frameledger unpark ctx-1 --why "upgraded to 0.2"`
    """
    if not why.strip() or "\x00" in why:
        raise typer.BadParameter("the reason is empty or has a NUL", param_hint="--why")
    with backend.exit_on_error():
        unparked = _unparked(context, why)
    if as_json:
        result = {"context_id": context, "folded": unparked.folded, "parked_since": unparked.parked_version}
        typer.echo(
            json.dumps(
                result
                | {"error": unparked.error, "published": unparked.record_count, "unsent": unparked.unsent}
            )
        )
    elif unparked.folded or unparked.error is None:
        typer.echo(
            f"Folded {plural(unparked.folded, 'frame')} of {context}; "
            f"this produced {plural(unparked.record_count, 'record')}."
        )
    if unparked.unsent is not None:
        typer.echo(
            f"The records are in the outbox and not on Kafka: {unparked.unsent}\n"
            "The next projector of the partition publishes them: restart the projector when Kafka is available again.",
            err=True,
        )
    if unparked.error is not None:
        output.fail(
            f"Version {unparked.parked_version} of {context} still cannot be folded: {unparked.error}",
            "The conversation stays parked from that version on.",
        )


def _unparked(context: str, why: str) -> Unparked:
    settings = Settings.from_env()
    try:
        with backend.change(lock_timeout=LOCK_TIMEOUT):
            return asyncio.run(_unpark(settings, context, why))
    except NotParkedError:
        output.fail(
            f"The conversation {context!r} is not parked.", "`frameledger parked` lists the parked ones."
        )
    except (ContradictoryHeadError, NewerHeadError) as error:
        output.fail(str(error), "Nothing was changed.")
    except StoredStateError as error:
        rebuild = suggestion.command("rebuild", options=["--context", context, "--apply"])
        output.fail(
            f"The conversation {context!r} cannot be unparked: {error}.",
            f"Nothing was changed. Run `{rebuild}`, and then this command again.",
        )


async def _unpark(settings: Settings, context: str, why: str) -> Unparked:
    async with (
        await database.connect(
            settings, "frameledger unpark", SESSION, role="frameledger_operator"
        ) as connection,
        Producer(settings, name="frameledger-unpark") as producer,
    ):
        await schema.check(connection)
        names = TopicNames(settings.topic_prefix)
        return await unpark_context(connection, names, context, why, RowSender(producer))

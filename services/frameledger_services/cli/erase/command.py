"""`frameledger erase`: permanent deletion of a conversation, with a receipt of what was deleted and what was not."""

from __future__ import annotations

import asyncio
import getpass
from typing import Annotated

import typer

from frameledger_services.cli.erase import receipts
from frameledger_services.cli.erase.waiting import Waiting
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.client import Client, NotVisibleError, PublishedFrame, Receipt
from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store import erasures
from frameledger_services.store.contexts import NoSuchContextError
from frameledger_services.store.erasures import Erasable

SOURCE = "frameledger/erase"

commands = typer.Typer()


@commands.command()
def erase(
    context: options.Context,
    why: Annotated[str, typer.Option(metavar="TEXT", help="Reason of the erasure, recorded in the receipt.")],
    requested_by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Person or system that requested the erasure. Default: your user name.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Erase a conversation that is not in the database: Kafka may have it."),
    ] = False,
    within: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Maximum wait for a projector to apply the erasure."),
    ] = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Erase a conversation permanently, and print the receipt.

    Publishes an erasure record. The projector that reads it deletes all rows of the conversation and cancels its open
    work. A row in the table `erasures` keeps what was deleted, when, by whom and why. Kafka keeps the older records
    until their retention ends; a rebuild from Kafka also reads the erasure, so the conversation is not restored. A
    later frame with the same id starts a new conversation unless FRAMELEDGER_ERASED_IDS rejects it. Erasing a
    conversation again publishes nothing and prints its receipt.

    Exit code 1: nothing was published, or no projector applied the erasure in time. In the latter case, and after
    Ctrl-C (exit code 130), the erasure stays on the log and is applied as soon as a projector runs.

    Example: `frameledger erase ctx-1 --why "request 17 of its user"`
    """
    if not why.strip():
        raise typer.BadParameter("the reason is empty", param_hint="--why")
    if not yes:
        output.confirm(
            f"Erase the conversation {context!r} permanently?", "`frameledger show` shows its context."
        )
    with backend.exit_on_error():
        settings = Settings.from_env()
        before = asyncio.run(_looked_up(settings, context, force=force))
        if before.is_there or force:
            waiting = Waiting(within)
            try:
                receipt = asyncio.run(_erase(settings, context, why, requested_by or _user(), waiting))
            except NotVisibleError:
                waiting.give_up()
            except KeyboardInterrupt:
                waiting.interrupt()
            if not receipt.frame_count and not force:
                # An earlier erasure, which was still on the log, deleted everything.
                receipt = asyncio.run(_newest(settings, context))
        else:
            typer.echo(f"{context!r} is already erased. Nothing was published. Its receipt:", err=True)
            receipt = asyncio.run(_newest(settings, context))
        retention_ms = asyncio.run(_retention(settings))
    names = TopicNames(settings.topic_prefix)
    if as_json:
        receipts.print_json(receipt, names, retention_ms, before.forks)
        return
    receipts.print_lines(receipt, names, retention_ms, before.forks)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


async def _looked_up(settings: Settings, context: str, *, force: bool) -> Erasable:
    """Returns what the database has of a conversation. Ends the command if it has nothing and no receipt."""
    conversation = await backend.query(settings, erasures.erasable, context)
    if not conversation.is_there and conversation.erased_at is None and not force:
        output.fail(
            str(NoSuchContextError(context)),
            "`frameledger list` lists the conversations. --force also erases one that only Kafka has or will have.",
        )
    return conversation


async def _newest(settings: Settings, context: str) -> Receipt:
    """Returns the newest receipt of a conversation, which was erased."""
    receipt = await backend.query(settings, erasures.newest_receipt, context)
    assert receipt is not None
    return receipt


async def _erase(
    settings: Settings, context: str, why: str, requested_by: str | None, waiting: Waiting
) -> Receipt:
    timer: asyncio.TimerHandle | None = None

    def note(place: PublishedFrame) -> None:
        nonlocal timer
        timer = waiting.begin(place)

    async with Client(settings, source=SOURCE) as client:
        try:
            return await client.erase(
                context, why=why, requested_by=requested_by, within=waiting.within, on_log=note
            )
        finally:
            if timer is not None:
                timer.cancel()


async def _retention(settings: Settings) -> str | None:
    """Returns `retention.ms` of the frames topic, or None if no broker answers."""
    name = TopicNames(settings.topic_prefix).frames
    try:
        async with broker.connect(settings) as brokers:
            topics = await brokers.describe([name], configs=True)
    except (BrokerError, SettingsError):
        return None
    return topics[name].config.get("retention.ms") if name in topics else None

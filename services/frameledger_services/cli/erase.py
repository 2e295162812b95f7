"""`frameledger erase`: permanent deletion of a conversation, with a receipt of what was deleted and what was not."""

from __future__ import annotations

import asyncio
import getpass
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, NoReturn

import typer

from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.topics import days
from frameledger_services.client import Client, NotVisibleError, PublishedFrame, Receipt
from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store import erasures
from frameledger_services.store.contexts import NoSuchContextError
from frameledger_services.store.erasures import Erasable

SOURCE = "frameledger/erase"

QUIET_SECONDS = 2.0
"""Seconds of waiting after which the command prints what it waits for."""

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
            waiting = _Waiting(within)
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
        kept = asyncio.run(_retention(settings))
    names = TopicNames(settings.topic_prefix)
    if as_json:
        _print_json(receipt, names, kept, before.forks)
        return
    for line in _shown(receipt, names, kept, before.forks):
        typer.echo(line)


class _Waiting:
    """Messages while no projector has applied the erasure."""

    def __init__(self, within: float) -> None:
        self.within = within
        self._place: PublishedFrame | None = None

    def begin(self, place: PublishedFrame) -> asyncio.TimerHandle:
        self._place = place
        return asyncio.get_running_loop().call_later(
            QUIET_SECONDS,
            lambda: typer.echo(
                f"The erasure is on the log ({self._where}). Waiting up to {self.within:g} s for a projector to apply "
                "it ...",
                err=True,
            ),
        )

    @property
    def _where(self) -> str:
        place = self._place
        return "" if place is None else f"{place.topic}, partition {place.partition}, offset {place.offset}"

    def give_up(self) -> NoReturn:
        output.fail(
            f"The erasure is on the log ({self._where}), but no projector applied it within {self.within:g} s.",
            "A projector applies it as soon as one runs (see `frameledger status`). Then run the same command again to "
            "print the receipt; it publishes nothing.",
        )

    def interrupt(self) -> NoReturn:
        if self._place is None:
            typer.echo(
                "Interrupted. The erasure may or may not have been published: run the command again.",
                err=True,
            )
        else:
            typer.echo(
                f"Interrupted. The erasure stays on the log ({self._where}), and the projector that reads it applies "
                "it. Run the same command again to print the receipt.",
                err=True,
            )
        raise typer.Exit(130)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


async def _looked_up(settings: Settings, context: str, *, force: bool) -> Erasable:
    """Returns what the database has of a conversation. Ends the command if it has nothing and no receipt."""
    found = await backend.query(settings, erasures.erasable, context)
    if not found.is_there and found.erased_at is None and not force:
        output.fail(
            str(NoSuchContextError(context)),
            "`frameledger list` lists the conversations. --force also erases one that only Kafka has or will have.",
        )
    return found


async def _newest(settings: Settings, context: str) -> Receipt:
    """Returns the newest receipt of an erased conversation. Of consecutive erasures without a frame between them it is
    the first, which deleted the rows; the others come from a command that was interrupted and run again."""
    newest, *older = await backend.query(settings, erasures.receipts, context)
    for one in older:
        if newest.frame_count or one.version != newest.version - 1:
            break
        newest = one
    return newest


async def _erase(
    settings: Settings, context: str, why: str, requested_by: str | None, waiting: _Waiting
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
            found = await brokers.describe([name], configs=True)
    except (BrokerError, SettingsError):
        return None
    return found[name].config.get("retention.ms") if name in found else None


def _print_json(receipt: Receipt, names: TopicNames, kept: str | None, copies: Sequence[str]) -> None:
    times = {
        name: None if at is None else at.isoformat()
        for name, at in (("erased_at", receipt.erased_at), ("logged_at", receipt.logged_at))
    }
    values = asdict(receipt) | times | {"chain": receipt.chain.hex(), "frame_id": str(receipt.frame_id)}
    on_kafka = {"topic": names.frames, "retention_ms": kept}
    del values["places"]
    places = [on_kafka | asdict(place) for place in receipt.places]
    typer.echo(json.dumps(values | {"kept_on_kafka": places, "forks": list(copies)}))


def _shown(receipt: Receipt, names: TopicNames, kept: str | None, copies: Sequence[str]) -> Iterator[str]:
    frames = plural(receipt.frame_count, "frame")
    after = f"If the id is used again, its versions continue after {receipt.version}."
    yield f"Erased {receipt.context_id}: {frames}. {after}"
    yield f"  when   {_utc(receipt.erased_at)}"
    yield f"  who    {receipt.requested_by or 'not recorded'}; deleted by {receipt.erased_by}"
    yield f"  why    {receipt.why}"
    yield f"  log    {names.frames}, partition {receipt.partition}, offset {receipt.offset}"
    yield f"  chain  {receipt.chain.hex()}"
    yield "Not erased:"
    for place in receipt.places:
        again = "" if place.generation == 1 else f", generation {place.generation}"
        yield (
            f"  {place.records:,} records on Kafka: {names.frames}, partition {place.partition}, between offsets "
            f"{place.first_offset} and {place.last_offset}{again};"
        )
        yield f"  {_until(receipt.logged_at, kept)}."
    yield f"  Its effects and dead letters, if any, on {names.inference}, {names.function_calls} and"
    yield f"  {names.dead_letters}; backups of the database; exported files."
    for copy in copies:
        yield f"  {copy}, which was forked from it, is a separate conversation: erase it separately."
    yield "  A rebuild from Kafka applies the erasure: it does not restore the conversation."


def _until(logged_at: datetime | None, kept: str | None) -> str:
    """Returns how long Kafka keeps the records written before this time."""
    if kept is None:
        return "kept until the topic's retention ends"
    if not kept.isdigit() or logged_at is None:
        ends = (
            "" if kept != "-1" else "; set FRAMELEDGER_FRAMES_RETENTION_DAYS, and retention.ms of the topic"
        )
        return f"kept {days(kept)}{ends}"
    return f"kept {days(kept)}: until {_utc(logged_at + timedelta(milliseconds=int(kept)))}, and until its segment ends"


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

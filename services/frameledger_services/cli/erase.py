"""`frameledger erase`: a conversation forgotten for good, with a receipt of what was deleted and what was not."""

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
"""After so long it says what it waits for."""

commands = typer.Typer()


@commands.command()
def erase(
    context: options.Context,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason; the receipt keeps it.")],
    requested_by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who asked for it; by default your user name.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also if the database does not have it: Kafka may.")
    ] = False,
    within: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long to wait for a projector at most.")
    ] = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Erase a conversation for good, and print the receipt.

    The erasure is a record on the log, and the projector that reads it deletes everything of the conversation from the
    tables, and cancels its work. A row in `erasures` says what was deleted, when, by whom and why. Kafka keeps older
    records until their retention ends, but whoever rebuilds the tables from them meets the erasure, too, and the
    conversation does not come back. A later frame of the same key begins a new conversation, unless
    FRAMELEDGER_ERASED_IDS refuses it. What was erased already is not erased again: its receipt is printed.

    Exit code 1: nothing was published, or no projector has honoured the erasure in time. In the latter case, and after
    Ctrl-C (exit code 130), it stays on the log, and is honoured as soon as a projector runs.

    Example: `frameledger erase ctx-1 --why "request 17 of its user"`
    """
    if not why.strip():
        raise typer.BadParameter("say why", param_hint="--why")
    if not yes:
        output.confirm(f"Erase all of {context!r} for good?", "`frameledger show` shows it.")
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
                # An erasure before it was on its way, and deleted all.
                receipt = asyncio.run(_newest(settings, context))
        else:
            typer.echo(f"{context!r} was erased before. Nothing was published; its receipt:", err=True)
            receipt = asyncio.run(_newest(settings, context))
        kept = asyncio.run(_retention(settings))
    names = TopicNames(settings.topic_prefix)
    if as_json:
        _print_json(receipt, names, kept, before.forks)
        return
    for line in _shown(receipt, names, kept, before.forks):
        typer.echo(line)


class _Waiting:
    """What is said while a projector has not honoured the erasure yet."""

    def __init__(self, within: float) -> None:
        self.within = within
        self._place: PublishedFrame | None = None

    def begin(self, place: PublishedFrame) -> asyncio.TimerHandle:
        self._place = place
        return asyncio.get_running_loop().call_later(
            QUIET_SECONDS,
            lambda: typer.echo(
                f"The erasure is on the log ({self._where}). Waiting for a projector to honour it, for "
                f"{self.within:g} s at most ...",
                err=True,
            ),
        )

    @property
    def _where(self) -> str:
        place = self._place
        return "" if place is None else f"{place.topic}, partition {place.partition}, offset {place.offset}"

    def give_up(self) -> NoReturn:
        output.fail(
            f"The erasure is on the log ({self._where}), and no projector has honoured it within {self.within:g} s.",
            "It is honoured as soon as one runs (`frameledger status`); nothing has to be published again. Then the "
            "same command prints the receipt.",
        )

    def interrupt(self) -> NoReturn:
        if self._place is None:
            typer.echo(
                "Interrupted. It is not known whether the erasure was published: run it again.", err=True
            )
        else:
            typer.echo(
                f"Interrupted. The erasure stays on the log ({self._where}), and is honoured by the projector that "
                "reads it. Then the same command prints the receipt.",
                err=True,
            )
        raise typer.Exit(130)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


async def _looked_up(settings: Settings, context: str, *, force: bool) -> Erasable:
    """Returns what the database has of a conversation. Ends the command if that is nothing, and it was never erased."""
    found = await backend.query(settings, erasures.erasable, context)
    if not found.is_there and found.erased_at is None and not force:
        output.fail(
            str(NoSuchContextError(context)),
            "`frameledger list` lists the conversations. --force also erases one that only Kafka has or will have.",
        )
    return found


async def _newest(settings: Settings, context: str) -> Receipt:
    """Returns the newest receipt of a conversation that was erased: of erasures with no frame between them the first,
    since that one deleted what there was. The others are of a command that was interrupted and run again."""
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
    """The frames topic's `retention.ms`; None if no broker says."""
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
    yield f"Erased {receipt.context_id}: {frames}. An id that is used again goes on from version {receipt.version}."
    yield f"  when   {_utc(receipt.erased_at)}"
    yield f"  who    {receipt.requested_by or 'not said'}; deleted by {receipt.erased_by}"
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
    yield f"  Effects and dead letters of it, if any, on {names.inference}, {names.function_calls} and"
    yield f"  {names.dead_letters}; backups of the database, and what was exported."
    for copy in copies:
        yield f"  {copy}, which was forked from it: a conversation of its own, to be erased by itself."
    yield "  A rebuild from Kafka honours the erasure: it does not bring the conversation back."


def _until(logged_at: datetime | None, kept: str | None) -> str:
    """How long Kafka keeps what was written before this."""
    if kept is None:
        return "kept as long as the topic's retention says"
    if not kept.isdigit() or logged_at is None:
        ends = (
            "" if kept != "-1" else "; set FRAMELEDGER_FRAMES_RETENTION_DAYS, and retention.ms of the topic"
        )
        return f"kept {days(kept)}{ends}"
    return f"kept {days(kept)}: until {_utc(logged_at + timedelta(milliseconds=int(kept)))}, and until its segment ends"


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"

"""`frameledger erase`: a conversation deleted from the tables, with a receipt of what was deleted and what was not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC
from typing import Annotated

import typer
from psycopg import errors

from frameledger_services import database
from frameledger_services.cli.terminal import backend, options, output
from frameledger_services.cli.topics import days
from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings, SettingsError
from frameledger_services.store import conversations, schema
from frameledger_services.store.conversations import Places, Receipt

LOCK_TIMEOUT = "10s"

commands = typer.Typer()


@commands.command()
def erase(
    context: options.Context,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason; the receipt keeps it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Delete a conversation from the database, and print the receipt.

    Everything of it is deleted from the tables, and a row in `erasures` says what was, when, by whom and why. Kafka
    keeps its records until their retention ends, and whoever rebuilds the tables from them has the conversation again:
    the receipt says which records. A later frame of the same key begins a new conversation. Only the role
    frameledger_operator may do it.

    Example: `frameledger erase ctx-1 --why "request 17 of its user"`
    """
    if not why.strip() or "\x00" in why:
        raise typer.BadParameter("say why", param_hint="--why")
    if not context or "\x00" in context:
        raise typer.BadParameter("a context's key has at least one byte and no NUL", param_hint="CONTEXT")
    if not yes:
        output.confirm(f"Delete all of {context!r} from the database?", "`frameledger show` shows it.")
    with backend.exit_on_error():
        settings = Settings.from_env()
        with backend.change(lock_timeout=LOCK_TIMEOUT):
            done = asyncio.run(_erase(settings, context, why))
        if done is None:
            output.fail(
                f"There is no context {context!r} in the database.",
                "`frameledger list` lists those that are.",
            )
        receipt, places = done
        kept = asyncio.run(_retention(settings))
    if as_json:
        values = asdict(receipt) | {"erased_at": receipt.erased_at.isoformat(), "chain": receipt.chain.hex()}
        on_kafka = {"topic": TopicNames(settings.topic_prefix).frames, "retention_ms": kept}
        typer.echo(json.dumps(values | {"kept_on_kafka": [on_kafka | asdict(place) for place in places]}))
        return
    for line in _shown(receipt, places, TopicNames(settings.topic_prefix), kept):
        typer.echo(line)


async def _erase(settings: Settings, context: str, why: str) -> tuple[Receipt, Sequence[Places]] | None:
    session = {"lock_timeout": LOCK_TIMEOUT}
    async with await database.connect(settings, "frameledger erase", session) as connection:
        await schema.check(connection)
        try:
            return await conversations.erase(connection, context, why)
        except errors.InsufficientPrivilege:
            remedy = "Use one that has the role frameledger_operator, or its owner."
            output.fail("The database's user may not erase.", remedy)


async def _retention(settings: Settings) -> str | None:
    """The frames topic's `retention.ms`; None if no broker says."""
    name = TopicNames(settings.topic_prefix).frames
    try:
        async with broker.connect(settings) as brokers:
            found = await brokers.describe([name], configs=True)
    except (BrokerError, SettingsError):
        return None
    return found[name].config.get("retention.ms") if name in found else None


def _shown(receipt: Receipt, places: Sequence[Places], names: TopicNames, kept: str | None) -> Iterator[str]:
    at = f"{receipt.erased_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    frames = f"{receipt.frame_count:,} frames, up to version {receipt.version}"
    yield f"Erased {receipt.context_id} from the database: {frames}."
    yield f"  when   {at}, by {receipt.erased_by}"
    yield f"  why    {receipt.why}"
    yield f"  chain  {receipt.chain.hex()}"
    yield "Not erased:"
    how_long = "as long as its retention says" if kept is None else f"kept {days(kept)}"
    for place in places:
        again = "" if place.generation == 1 else f", generation {place.generation}"
        yield (
            f"  {place.records:,} records on Kafka: {names.frames}, partition {place.partition}, between offsets "
            f"{place.first_offset} and {place.last_offset}{again}; {how_long}."
        )
    yield f"  Effects and dead letters of it, if any, on {names.inference}, {names.function_calls} and"
    yield f"  {names.dead_letters}; backups of the database."
    yield "  Rebuilding the tables from Kafka brings the conversation back. To end that, let the frames expire:"
    yield "  FRAMELEDGER_FRAMES_RETENTION_DAYS, and retention.ms of the topic."

"""Copies of the frames of a conversation, published to a topic."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack

import typer

from frameledger_services.cli.terminal import escape, moment, output
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.client import Client
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.forks.copies import Copies
from frameledger_services.forks.pace import ReplayPace
from frameledger_services.forks.replay import SOURCE, Replayer
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections


async def publish(
    settings: Settings,
    copies: Copies,
    topic: str,
    first: int | None,
    last: int | None,
    speed: float,
    as_json: bool,
) -> None:
    """Publish copies of the frames from `first` to `last`, with their timing, and print how many."""
    pace = ReplayPace(speed, time.monotonic, asyncio.sleep)
    progress = output.error_console()
    async with AsyncExitStack() as stack:
        connections = Connections(settings)
        stack.push_async_callback(connections.close)
        client = await stack.enter_async_context(Client(settings, source=SOURCE))
        producer = await stack.enter_async_context(Producer(settings, name="frameledger-replay"))
        until = (await connections.read(moment.find_range, copies.context_id, first, last)).version
        status = stack.enter_context(progress.status("Publishing")) if sys.stderr.isatty() else None

        def tell(version: int) -> None:
            if status is not None:
                status.update(f"Published up to version {version:,} of {until:,}")

        replayer = Replayer(client, connections, producer, TopicNames(settings.topic_prefix))
        copied, left_out = await replayer.publish(copies, topic, first or 1, until, pace, tell)
    if as_json:
        result = {"context_id": copies.copy, "topic": topic, "copied": copied, "left_out": left_out}
        output.print_json_object(result)
        return
    kind = "" if copies.live else ", a recording"
    original, copy, where = map(escape.printable, (copies.context_id, copies.copy, topic))
    typer.echo(f"Published {plural(copied, 'frame')} of {original} to {where} as {copy}{kind}.")
    if left_out:
        typer.echo(f"Not copied: {left_out:,} ({_why(copies)}).")


def _why(copies: Copies) -> str:
    if copies.live:
        return "answers, calls and speech, which are generated again"
    return "ignored frames, frames of superseded attempts, and erasures"

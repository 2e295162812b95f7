"""`frameledger replay`: playback of a conversation in the terminal, or publication of copies of its frames."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from frameledger.record import MAX_KEY_BYTES, DecodeError, decode
from frameledger_services.cli.replay.render import Screen
from frameledger_services.cli.terminal import backend, moment, options, output
from frameledger_services.client import Client
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.forks.copies import Copies
from frameledger_services.forks.pace import ReplayPace, time_of
from frameledger_services.forks.replay import SOURCE, Replayer, recorded_frames
from frameledger_services.settings import Settings
from frameledger_services.store import client_calls
from frameledger_services.store.client_calls import BegunCall
from frameledger_services.store.connections import Connections

LONGEST_SILENCE = 3.0
"""Maximum pause in the terminal, in seconds."""

VERSIONS_AT_ONCE = 500
"""Versions per query for calls of clients."""

commands = typer.Typer()


@commands.command()
def replay(
    context: options.Context,
    speed: Annotated[
        float,
        typer.Option(min=0, metavar="N", help="Speed factor. 0: without pauses."),
    ] = 1.0,
    first: Annotated[
        int | None,
        typer.Option("--from", min=1, metavar="VERSION", help="First version to play.", show_default=False),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--until", min=1, metavar="VERSION", help="Last version to play.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TOPIC", help="Publish copies to this topic instead.", show_default=False
        ),
    ] = None,
    new: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NEW",
            help="With --to: id of the copy. Default: CONTEXT-replay.",
            show_default=False,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="With --to: publish only the frames of users and applications. Models and functions are really called "
            "again.",
        ),
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Play a conversation in the terminal with its timing, or publish copies of its frames to another conversation.

    In the terminal, pauses of more than three seconds are shortened and marked. Copies are a recording with another
    id: all frames are folded, but no model and no function is called. Repeating the command publishes nothing twice.

    Example: `frameledger replay ctx-1 --speed 2 --from 10`
    """
    if topic is None and (new is not None or live):
        raise typer.BadParameter("use them with --to", param_hint="--as, --live")
    copy = new or f"{context}-replay"
    if topic is not None and (copy == context or len(copy.encode()) > MAX_KEY_BYTES or "\x00" in copy):
        raise typer.BadParameter("the copy needs another id, of at most 255 bytes", param_hint="--as")
    with backend.exit_on_error(), suppress(KeyboardInterrupt):
        settings = Settings.from_env()
        if topic is None:
            asyncio.run(_play(settings, context, first, last, speed, as_json))
        else:
            asyncio.run(_publish(settings, Copies(context, copy, live), topic, first, last, speed, as_json))


async def _play(
    settings: Settings, context_id: str, first: int | None, last: int | None, speed: float, as_json: bool
) -> None:
    pace = ReplayPace(speed, time.monotonic, asyncio.sleep, LONGEST_SILENCE)
    screen = Screen(output.console())
    async with AsyncExitStack() as stack:
        connections = Connections(settings)
        stack.push_async_callback(connections.close)
        until = await _until(connections, context_id, last)
        begun = _Begun(connections, context_id)
        async for recorded in recorded_frames(connections, context_id, first or 1, until):
            seconds, silence = pace.wait_for(time_of(recorded))
            if silence and not as_json:
                screen.silence(silence)
            await pace.wait(seconds)
            if recorded.outcome != "applied":
                continue
            if as_json:
                _echo(_Played(recorded.version, time_of(recorded), recorded.payload.decode()))
                continue
            with suppress(DecodeError):
                screen.show(decode(recorded.payload))
            for call in await begun.at(recorded.version):
                screen.began(call)
    screen.end()


class _Begun:
    """The calls that a client answers, by the version at which they started, for which there is no frame. Versions are
    queried in order and in batches, so that memory is bounded."""

    def __init__(self, connections: Connections, context_id: str) -> None:
        self._connections = connections
        self._context_id = context_id
        self._calls: list[BegunCall] = []
        self._last = 0

    async def at(self, version: int) -> list[BegunCall]:
        if version > self._last:
            self._last = version + VERSIONS_AT_ONCE - 1
            self._calls = await self._connections.read(
                client_calls.begun, self._context_id, version, self._last
            )
        return [call for call in self._calls if call.version == version]


async def _publish(
    settings: Settings,
    copies: Copies,
    topic: str,
    first: int | None,
    last: int | None,
    speed: float,
    as_json: bool,
) -> None:
    pace = ReplayPace(speed, time.monotonic, asyncio.sleep)
    progress = Console(stderr=True)
    async with AsyncExitStack() as stack:
        connections = Connections(settings)
        stack.push_async_callback(connections.close)
        client = await stack.enter_async_context(Client(settings, source=SOURCE))
        producer = await stack.enter_async_context(Producer(settings, name="frameledger-replay"))
        until = await _until(connections, copies.context_id, last)
        status = stack.enter_context(progress.status("Publishing")) if sys.stderr.isatty() else None

        def tell(version: int) -> None:
            if status is not None:
                status.update(f"Published up to version {version:,} of {until:,}")

        replayer = Replayer(client, connections, producer, TopicNames(settings.topic_prefix))
        done, left_out = await replayer.publish(copies, topic, first or 1, until, pace, tell)
    if as_json:
        said = {"context_id": copies.copy, "topic": topic, "copied": done, "left_out": left_out}
        typer.echo(json.dumps(said, ensure_ascii=False))
        return
    kind = "" if copies.live else ", a recording"
    typer.echo(f"{done:,} frames of {copies.context_id} are on {topic} as {copies.copy}{kind}.")
    if left_out:
        typer.echo(f"Not copied: {left_out:,} ({_why(copies)}).")


def _why(copies: Copies) -> str:
    if copies.live:
        return "answers, calls and speech, which are generated again"
    return "ignored frames, frames of superseded attempts, and erasures"


async def _until(connections: Connections, context_id: str, last: int | None) -> int:
    found = await connections.read(moment.find, context_id, None if last is None else moment.At(version=last))
    return found.version


@dataclass(frozen=True, slots=True)
class _Played:
    """A frame in the output of `--json`."""

    version: int
    at: datetime
    payload: str


def _echo(played: _Played) -> None:
    said: dict[str, Any] = asdict(played) | {"at": played.at.isoformat(), "frame": json.loads(played.payload)}
    said.pop("payload")
    # Half of a surrogate pair is legal JSON and cannot be printed: it is printed as JSON escapes it.
    text = json.dumps(said, ensure_ascii=False)
    typer.echo(text.encode("utf-8", "backslashreplace").decode())

"""`frameledger tail`: the latest frames, stored ones of one conversation or the log's records of all conversations."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from frameledger.record import DecodeError, Record, decode, read
from frameledger_services.cli.terminal import (
    backend,
    escape,
    format_frame,
    gateway_option,
    moment,
    options,
    output,
)
from frameledger_services.client import Conversations, NoSuchContextError, StoredFrame
from frameledger_services.event_log.reader import last_records
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings

SOURCE = "frameledger/tail"

commands = typer.Typer()

MIN_WORDS = 20
"""Columns that the words of a frame have at least, unless they are shorter."""


@commands.command()
def tail(
    context: Annotated[
        str | None,
        typer.Argument(
            metavar="CONTEXT", callback=options.context_id, help="Id of the conversation.", show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing new frames until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, metavar="N", help="Number of frames to start with.")
    ] = 20,
    as_json: options.AsJsonLines = False,
    url: gateway_option.Url = None,
) -> None:
    """Show the latest frames.

    For a conversation, frames are read from the database, with their outcomes. Without one, records of all
    conversations are read from the log, including those that no projector has read yet; records of different partitions
    are ordered by broker time. Over HTTP (`--url`) a conversation is required.

    Example: frameledger tail ctx-1 --follow
    """
    with backend.exit_on_error(), output.regular_end_on_ctrl_c(until_ctrl_c=follow):
        settings = Settings.from_env()
        gateway = gateway_option.address(settings, url)
        if context is not None:
            client = gateway_option.conversations(settings, gateway, SOURCE)
            asyncio.run(_conversation(client, context, lines, follow, as_json))
        elif gateway is None or (url is None and settings.kafka_bootstrap_servers is not None):
            asyncio.run(_log(settings, lines, follow, as_json))
        else:
            output.fail(
                f"The raw log cannot be read over HTTP ({gateway}).",
                "Give a conversation, as in `frameledger tail ctx-1`, or set FRAMELEDGER_KAFKA_BOOTSTRAP_SERVERS.",
            )


async def _conversation(client: Conversations, context: str, lines: int, follow: bool, as_json: bool) -> None:
    console = output.console()
    async with client:
        newest = await client.newest_version(context)
        if not newest and not follow:
            try:
                # Raises the error that says why there is none: version 0 alone does not.
                await client.context(context)
            except NoSuchContextError as error:
                moment.fail_missing(error)
        after = max(newest - lines, 0)
        frames: AsyncGenerator[StoredFrame, None]
        frames = client.follow(context, after) if follow else client.frames(context, after)
        async with aclosing(frames):
            async for frame in frames:
                if as_json:
                    _echo(_frame_as_json(frame))
                else:
                    _print_frame(console, frame)


async def _log(settings: Settings, lines: int, follow: bool, as_json: bool) -> None:
    console = output.console()
    topic = TopicNames(settings.topic_prefix).frames
    async with aclosing(last_records(settings, topic, lines, follow=follow)) as records:
        async for record in records:
            if as_json:
                _echo(_record_as_json(record))
            else:
                _print_record(console, record)


def _print_frame(console: Console, frame: StoredFrame) -> None:
    outcome = frame.outcome if frame.reason is None else frame.reason
    cells = (
        f"{frame.version:>6}",
        f"{frame.logged_at.astimezone(UTC):%H:%M:%SZ}",
        f"{_short(frame.type):<26}",
        f"{outcome:<10}",
    )
    _print(console, cells, _words(frame), format_frame.OUTCOME_COLORS.get(frame.outcome, ""))


def _words(frame: StoredFrame) -> str:
    try:
        return format_frame.summary(frame.frame)
    except DecodeError:
        # Over HTTP with a token that redacts content.
        return ""


def _print_record(console: Console, record: Record) -> None:
    at = _logged_at(record.timestamp_ms or 0)
    try:
        logged = read(record)
        kind, words, colour = _short(logged.frame.type), format_frame.summary(logged.frame), ""
    except DecodeError as error:
        kind, words, colour = "no frame", str(error), "red"
    key = escape.one_line("-" if record.key is None else record.key.decode(errors="replace"))
    cells = (f"{at:%H:%M:%SZ}", f"{record.partition:>3}:{record.offset:<8}", f"{key:<20}", f"{kind:<26}")
    _print(console, cells, words, colour)


def _logged_at(timestamp_ms: int) -> datetime:
    """Returns the time of a record as the tables have it. A topic that another program created may accept any time of a
    producer."""
    # Imported here: to show a conversation needs nothing of the projector.
    from frameledger_services.projector.row_values import at

    return at(timestamp_ms)


def _print(console: Console, cells: Sequence[str], words: str, colour: str) -> None:
    for text in lines_of(cells, words, console.width, may_break=console.is_terminal):
        line = Text(text, colour)
        line.truncate(console.width, overflow="ellipsis")
        console.print(line, no_wrap=True)
    # The reader of a pipe follows too.
    sys.stdout.flush()


def lines_of(cells: Sequence[str], words: str, width: int, *, may_break: bool) -> list[str]:
    """Returns the lines of a frame: its cells and its words. The cells are padded to columns if that leaves the words
    `MIN_WORDS` columns of `width`. If not even cells without padding do, and the line `may_break`, the words are on a
    line of their own."""
    room = min(len(words), MIN_WORDS) + 2
    head = "  ".join(cells)
    if len(head) + room > width:
        head = "  ".join(cell.strip() for cell in cells)
    if words and may_break and len(head) + room > width:
        return [head, f"    {words}"]
    return [f"{head}  {words}".rstrip()]


def _short(frame_type: str) -> str:
    name = escape.one_line(frame_type.removesuffix("Frame"))
    return name if len(name) <= 26 else name[:25] + "…"


def _frame_as_json(frame: StoredFrame) -> dict[str, Any]:
    return {
        "context_id": frame.context_id,
        "version": frame.version,
        "outcome": frame.outcome,
        "reason": frame.reason,
        "logged_at": frame.logged_at.isoformat(),
        "source": frame.source,
        "partition": frame.partition,
        "generation": frame.generation,
        "offset": frame.offset,
        "frame": json.loads(frame.payload),
    }


def _record_as_json(record: Record) -> dict[str, Any]:
    at = None if record.timestamp_ms is None else _logged_at(record.timestamp_ms)
    entry: dict[str, Any] = {
        "context_id": None if record.key is None else record.key.decode(errors="replace"),
        "logged_at": None if at is None else at.isoformat(timespec="milliseconds"),
        "partition": record.partition,
        "offset": record.offset,
    }
    try:
        decode(record.value or b"")
    except DecodeError as error:
        raw = None if record.value is None else base64.b64encode(record.value).decode("ascii")
        return entry | {"frame": None, "error": str(error), "value_base64": raw}
    return entry | {"frame": json.loads(record.value or b"")}


def _echo(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value))
    sys.stdout.flush()

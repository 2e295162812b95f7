"""`frameledger dlq`: dead letters, the records that are not valid frames, listed and published again."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table

from frameledger.record import FIRST_GENERATION, LogPosition, Outgoing
from frameledger_services import database
from frameledger_services.cli.repair import render_rejected
from frameledger_services.cli.terminal import backend, options, output, render_context
from frameledger_services.event_log.producer import Producer, PublishError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store import dead_letters, schema
from frameledger_services.store.dead_letters import DeadLetter
from frameledger_services.store.outbox import headers_from_json

_WHERE = re.compile(r"(?:(\d{1,10}):)?(\d{1,10}):(\d{1,19})", re.ASCII)

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
        found = asyncio.run(backend.query(settings, dead_letters.newest, _topic(settings), limit))
    if as_json:
        for one in found:
            typer.echo(json.dumps(_summary(one)))
        return
    if not found:
        typer.echo("There are no dead letters.")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("where", no_wrap=True)
    table.add_column("set aside (UTC)", no_wrap=True)
    table.add_column("context", overflow="fold", max_width=24)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("retried", no_wrap=True)
    table.add_column("error", overflow="fold")
    for one in found:
        table.add_row(
            _where(one),
            f"{one.recorded_at.astimezone(UTC):%m-%d %H:%M:%SZ}",
            render_context.text(one.context_id or "-"),
            "-" if one.value is None else str(len(one.value)),
            "" if one.retried_at is None else f"{one.retried_at.astimezone(UTC):%m-%d %H:%MZ}",
            render_context.text(f"{one.code}: {one.error}"),
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
        place = _place(settings, where)
        found = asyncio.run(backend.query(settings, dead_letters.at, [place]))
    if not found:
        _refuse_missing(place)
    (one,) = found
    if raw:
        sys.stdout.flush()
        sys.stdout.buffer.write(one.value or b"")
        sys.stdout.buffer.flush()
    elif as_json:
        typer.echo(json.dumps(_whole(one)))
    else:
        for line in render_rejected.lines(one):
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

    Their bytes do not change, so a record that is not JSON becomes a dead letter again. A frame without an id that is
    published twice is applied twice, so a record is retried only once unless you use --again.

    Example: `frameledger dlq retry 3:118`
    """
    if bool(where) == everything:
        raise typer.BadParameter("give positions of records, or --all", param_hint="PARTITION:OFFSET")
    with backend.exit_on_error(), backend.change():
        settings = Settings.from_env()
        places = [_place(settings, one) for one in where or ()]
        done = asyncio.run(_retry(settings, places, again=again))
    for one, place in done.published:
        typer.echo(f"Published {_where(one)} again at {place.partition}:{place.offset}.")
    for one, why in done.left:
        typer.echo(f"{_where(one)} was not published: {why}", err=True)
    if not done.published and not done.left:
        typer.echo("There is nothing to retry.")
    if done.left:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Retried:
    """What became of each dead letter, by its place. Its value is not kept: all together may not fit into memory."""

    published: list[tuple[LogPosition, LogPosition]] = field(default_factory=list)
    left: list[tuple[LogPosition, str]] = field(default_factory=list)


async def _retry(settings: Settings, places: Sequence[LogPosition], *, again: bool) -> _Retried:
    async with (
        await database.connect(settings, "frameledger dlq") as connection,
        Producer(settings, name="frameledger-dlq") as producer,
    ):
        await schema.check(connection)
        asked = places or await dead_letters.not_retried(connection, _topic(settings))
        done = _Retried()
        for first in range(0, len(asked), dead_letters.AT_ONCE):
            page = asked[first : first + dead_letters.AT_ONCE]
            found = {_place_of(one): one for one in await dead_letters.at(connection, page)}
            for place in places and page:
                if place in found:
                    continue
                if first == 0:
                    _refuse_missing(place)
                # Records of earlier pages are published, which must be told.
                done.left.append((place, "there is no dead letter at this position."))
            for place, one in found.items():
                why = _why_not(one, again=again)
                if why is None:
                    try:
                        (published,) = await producer.publish(one.topic, [_outgoing(one)])
                    except PublishError as error:
                        why = str(error)
                    else:
                        # Marked after Kafka acknowledged it: a crash in between publishes it twice, and loses none.
                        await dead_letters.note_retried(connection, place)
                        done.published.append((place, published))
                if why is not None:
                    done.left.append((place, why))
        return done


def _why_not(one: DeadLetter, *, again: bool) -> str | None:
    if one.key is None or not one.key:
        return (
            "it has no key, so it belongs to no conversation. Publish its value with `frameledger publish`."
        )
    if one.value is None:
        return "it has no value."
    if one.retried_at is not None and not again:
        return f"it was retried at {one.retried_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC. Use --again to repeat that."
    return None


def _outgoing(one: DeadLetter) -> Outgoing:
    assert one.key is not None
    assert one.value is not None
    return Outgoing(one.key, one.value, headers_from_json(one.headers))


def _topic(settings: Settings) -> str:
    return TopicNames(settings.topic_prefix).frames


def _place(settings: Settings, written: str) -> LogPosition:
    """Parses a position in the format of `_where`."""
    match = _WHERE.fullmatch(written)
    if match is None:
        raise typer.BadParameter(
            f"{written!r} is not PARTITION:OFFSET, like 3:118, nor GENERATION:PARTITION:OFFSET, like 2:3:118",
            param_hint="PARTITION:OFFSET",
        )
    generation, partition, offset = (int(number or FIRST_GENERATION) for number in match.groups())
    if max(generation, partition) >= 2**31 or offset >= 2**63:
        raise typer.BadParameter(f"{written!r} is not a position on a topic", param_hint="PARTITION:OFFSET")
    return LogPosition(_topic(settings), partition, offset, generation)


def _where(place: LogPosition | DeadLetter) -> str:
    """Returns the position of a record, with the topic's generation if it is not the first."""
    where = f"{place.partition}:{place.offset}"
    return where if place.generation == FIRST_GENERATION else f"{place.generation}:{where}"


def _place_of(one: DeadLetter) -> LogPosition:
    return LogPosition(one.topic, one.partition, one.offset, one.generation)


def _refuse_missing(place: LogPosition) -> NoReturn:
    output.fail(
        f"There is no dead letter at {_where(place)} of {place.topic}.",
        "`frameledger dlq list` lists them.",
    )


def _summary(one: DeadLetter) -> dict[str, Any]:
    return {
        "where": _where(one),
        "topic": one.topic,
        "partition": one.partition,
        "generation": one.generation,
        "offset": one.offset,
        "context_id": one.context_id,
        "logged_at": None if one.logged_at is None else one.logged_at.isoformat(),
        "recorded_at": one.recorded_at.isoformat(),
        "retried_at": None if one.retried_at is None else one.retried_at.isoformat(),
        "code": one.code,
        "error": one.error,
        "bytes": None if one.value is None else len(one.value),
    }


def _whole(one: DeadLetter) -> dict[str, Any]:
    """Returns the summary with all bytes in base64, and as text where they are text."""
    headers = [
        {"name": name, "value_base64": _base64(value)} for name, value in headers_from_json(one.headers)
    ]
    return _summary(one) | {
        "key_base64": _base64(one.key),
        "value_base64": _base64(one.value),
        "value": _text(one.value),
        "headers": headers,
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None

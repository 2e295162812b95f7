"""`frameledger export`: conversations written to files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from psycopg import AsyncConnection

from frameledger_services.cli.terminal import backend, escape, moment, options, output, progress
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.cli.terminal.whole_file import whole_file
from frameledger_services.settings import Settings
from frameledger_services.store import connections, contexts, transfer
from frameledger_services.store.transfer import Exported
from frameledger_services.transfer import exporting
from frameledger_services.transfer.cloudevents import CloudEvents
from frameledger_services.transfer.exporting import EarlierLifeError, Export, Lines, Pages

commands = typer.Typer()

_FEW = 10

_EARLIER_LIFE = "Fork it (`frameledger fork`) and export the fork, or export it in another --format."


class Format(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    CLOUDEVENTS = "cloudevents"
    OPENAI = "openai"
    PARQUET = "parquet"


@dataclass(slots=True)
class _Sum:
    """The totals of an export."""

    format: str
    conversations: int = 0
    frames: int = 0
    bytes: int = 0
    file: str | None = None
    left_out: list[str] = field(default_factory=list)
    """Conversations of --all that jsonl cannot hold."""


@commands.command("export")
def export(
    contexts_: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONTEXT",
            callback=options.context_ids,
            help="Ids of the conversations.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All conversations.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --all: only conversations with a frame since this time.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[Format, typer.Option("--format", help="Format of the export.")] = Format.JSONL,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|FOLDER",
            help="Output file, or folder for parquet. Default: standard output.",
        ),
    ] = None,
    at: moment.Option = None,
    as_json: options.AsJson = False,
) -> None:
    """Export conversations to a file.

    Formats: jsonl is lossless, and `frameledger import` restores the same frames and hash chain in another database.
    cloudevents is a JSON array of CloudEvents 1.0. openai is the context of one conversation, current or at --at, as
    a request of the chat completions API: messages, tools, tool_choice. parquet is a folder with frames.parquet,
    messages.parquet, runs.parquet and calls.parquet (pip install 'frameledger[parquet]').

    Each conversation is exported from one snapshot. jsonl cannot hold a conversation that goes on after an erasure:
    --all leaves it out and names it. --json prints a summary and needs -o.

    Example: `frameledger export ctx-1 -o ctx-1.jsonl`
    """
    named = contexts_ or []
    if bool(named) == everything:
        raise typer.BadParameter("give ids of conversations, or --all", param_hint="CONTEXT")
    if since is not None and not everything:
        raise typer.BadParameter("use it with --all", param_hint="--since")
    if as_json and out is None:
        raise typer.BadParameter("use it with -o FILE: standard output has the export", param_hint="--json")
    if at is not None and format_ is not Format.OPENAI:
        raise typer.BadParameter(
            "use it with --format openai; the other formats have every version", param_hint="--at"
        )
    if format_ is Format.OPENAI and len(named) != 1:
        raise typer.BadParameter("the format openai exports a single conversation", param_hint="CONTEXT")
    if format_ is Format.PARQUET and out is None:
        raise typer.BadParameter("parquet needs a folder", param_hint="-o")
    from_time = None if since is None else _time(since)
    done = _Sum(str(format_), file=None if out is None else str(out))
    with backend.exit_on_error(OSError):
        settings = Settings.from_env()
        if format_ is Format.PARQUET and out is not None:
            asyncio.run(_export_tables(settings, named, from_time, out, done))
        else:
            with whole_file(out) as file:
                if format_ is Format.OPENAI:
                    asyncio.run(_export_context(settings, named[0], at, file, done))
                else:
                    asyncio.run(_export(settings, named, from_time, format_, file, done))
    if as_json:
        typer.echo(json.dumps(asdict(done)))
    elif out is not None:
        written = f"{plural(done.conversations, 'conversation')}, {plural(done.frames, 'frame')}"
        typer.echo(f"{out}: {written}, {plural(done.bytes, 'byte')}.")
    if done.left_out:
        _name(done.left_out)


def _name(left_out: Sequence[str]) -> None:
    """Print what was left out to standard error: standard output may have the export."""
    which = ", ".join(map(escape.printable, left_out[:_FEW])) + (", ..." if len(left_out) > _FEW else "")
    one = len(left_out) == 1
    typer.echo(
        f"{plural(len(left_out), 'conversation')} {'was' if one else 'were'} left out, because "
        f"{'it goes' if one else 'they go'} on after an erasure: {which}.\n{_EARLIER_LIFE}",
        err=True,
    )


async def _export(
    settings: Settings,
    named: Sequence[str],
    since: datetime | None,
    format_: Format,
    file: BinaryIO,
    done: _Sum,
) -> None:
    write = _counting(file, done)
    async with _reading(settings) as connection:
        if format_ is Format.CLOUDEVENTS:
            events = CloudEvents(write)
            await _each(connection, named, since, events.export, done)
            events.end()
        else:
            await _each(connection, named, since, Lines(version("frameledger"), write).export, done)


async def _export_tables(
    settings: Settings, named: Sequence[str], since: datetime | None, folder: Path, done: _Sum
) -> None:
    # Imported here: it needs an extra.
    from frameledger_services.transfer.parquet import Parquet

    async with _reading(settings) as connection:
        with Parquet(connection, folder) as files:
            await _each(connection, named, since, files.export, done)
        done.bytes = files.bytes


async def _each(
    connection: AsyncConnection[Any],
    named: Sequence[str],
    since: datetime | None,
    export_one: Export,
    done: _Sum,
) -> None:
    await exporting.check_there(connection, named)
    total = len(named) or await transfer.count(connection, since)
    with progress.shown("conversations", total) as advance:

        async def told(head: Exported, pages: Pages) -> None:
            try:
                await export_one(head, pages)
            except EarlierLifeError as error:
                if named:
                    output.fail(str(error), _EARLIER_LIFE)
                done.left_out.append(head.context_id)
            else:
                done.conversations += 1
                done.frames += head.version
            advance(1)

        await exporting.each(connection, exporting.chosen(connection, named, since), told)


@asynccontextmanager
async def _reading(settings: Settings) -> AsyncIterator[AsyncConnection[Any]]:
    with backend.change():
        async with await connections.connect(settings, "frameledger export") as connection:
            yield connection


async def _export_context(
    settings: Settings, context_id: str, at: moment.At | None, file: BinaryIO, done: _Sum
) -> None:
    # Imported here: importing the adapters takes time.
    from frameledger_services.transfer import chat

    found = await backend.query(settings, moment.find, context_id, at)
    stored = await backend.query(settings, contexts.context, context_id, found.version)
    text = json.dumps(chat.request_parts(stored), indent=2, ensure_ascii=False) + "\n"
    # A lone surrogate, which a message may have, cannot be encoded in UTF-8; JSON has an escape for it.
    content = text.encode(errors="backslashreplace")
    file.write(content)
    done.conversations, done.frames, done.bytes = 1, found.version, len(content)


def _counting(file: BinaryIO, done: _Sum) -> Callable[[bytes], None]:
    def write(content: bytes) -> None:
        file.write(content)
        done.bytes += len(content)

    return write


def _time(written: str) -> datetime:
    asked = moment.parse(written)
    if asked.time is None:
        raise typer.BadParameter("give a time such as 2026-05-01T12:00:00+02:00", param_hint="--since")
    return asked.time.astimezone(UTC)

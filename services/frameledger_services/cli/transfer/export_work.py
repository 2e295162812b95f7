"""The work of `frameledger export`: conversations read from the database and written in a format."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO

import psycopg

from frameledger_services.cli.terminal import backend, moment, progress
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import connections, contexts, transfer
from frameledger_services.store.transfer import Exported
from frameledger_services.transfer import exporting
from frameledger_services.transfer.cloudevents import CloudEvents
from frameledger_services.transfer.exporting import EarlierLifeError, Export, LineExport, Pages


class Format(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    CLOUDEVENTS = "cloudevents"
    OPENAI = "openai"
    PARQUET = "parquet"


@dataclass(slots=True)
class Summary:
    """The totals of an export."""

    format: str
    conversations: int = 0
    frames: int = 0
    bytes: int = 0
    file: str | None = None
    left_out: list[str] = field(default_factory=list)
    """Conversations of --all that jsonl cannot hold."""


async def frames(
    settings: Settings,
    named: Sequence[str],
    since: datetime | None,
    format_: Format,
    file: BinaryIO,
    summary: Summary,
) -> None:
    """Write the frames of these conversations, as lines or as CloudEvents; without any, those of all conversations that
    had a frame `since`. Raises `EarlierLifeError` for a named one that lines cannot hold."""
    write = _counting(file, summary)
    async with _reading(settings) as connection:
        if format_ is Format.CLOUDEVENTS:
            events = CloudEvents(write)
            await _each(connection, named, since, events.export, summary)
            events.end()
        else:
            await _each(connection, named, since, LineExport(version("frameledger"), write).export, summary)


async def tables(
    settings: Settings, named: Sequence[str], since: datetime | None, folder: Path, summary: Summary
) -> None:
    """Write the rows of these conversations, or of all, to Parquet files in a folder."""
    # Imported here: it needs an extra.
    from frameledger_services.transfer.parquet import Parquet

    async with _reading(settings) as connection:
        with Parquet(connection, folder) as files:
            await _each(connection, named, since, files.export, summary)
        summary.bytes = files.bytes


async def context(
    settings: Settings, context_id: str, at: moment.At | None, file: BinaryIO, summary: Summary
) -> None:
    """Write the context of a conversation as a request of the chat completions API."""
    # Imported here: importing the adapters takes time.
    from frameledger_services.transfer import chat

    conversation = await backend.query(settings, moment.find, context_id, at)
    stored = await backend.query(settings, contexts.context, context_id, conversation.version)
    text = json.dumps(chat.request_parts(stored), indent=2, ensure_ascii=False) + "\n"
    # A lone surrogate, which a message may have, cannot be encoded in UTF-8; JSON has an escape for it.
    content = text.encode(errors="backslashreplace")
    file.write(content)
    summary.conversations, summary.bytes = 1, len(content)
    summary.frames = max(conversation.version - conversation.erased_version, 0)


async def _each(
    connection: Connection,
    named: Sequence[str],
    since: datetime | None,
    export_one: Export,
    summary: Summary,
) -> None:
    await exporting.check_exist(connection, named)
    total = len(named) or await transfer.count(connection, since)
    with progress.shown("conversations", total) as advance:

        async def export_counted(head: Exported, pages: Pages) -> None:
            try:
                await export_one(head, pages)
            except EarlierLifeError:
                if named:
                    raise
                summary.left_out.append(head.context_id)
            else:
                summary.conversations += 1
                summary.frames += head.frame_count
            advance(1)

        await exporting.each(connection, exporting.selected_ids(connection, named, since), export_counted)


@asynccontextmanager
async def _reading(settings: Settings) -> AsyncIterator[Connection]:
    try:
        session = connections.LONG_SESSION
        async with await connections.connect(settings, "frameledger export", session=session) as connection:
            yield connection
    except psycopg.Error as error:
        raise connections.failure("The database could not be read", error) from error


def _counting(file: BinaryIO, summary: Summary) -> Callable[[bytes], None]:
    def write(content: bytes) -> None:
        file.write(content)
        summary.bytes += len(content)

    return write

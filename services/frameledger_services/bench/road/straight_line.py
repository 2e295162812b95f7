"""The yardstick of throughput: a projector without guarantees. Run as a process, it ends when it has read all records.

It uses our consumer, our decoder and our COPY, and writes frames, messages, heads and offsets in one transaction per
batch. It has no epochs, locks, hash chain, deduplication or outbox, and does not fold: a message is what a user said,
what a function returned, or the text between the start and the end of a response.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import psycopg
from aiokafka import TopicPartition
from psycopg import AsyncConnection
from sqlalchemy import MetaData

from frameledger.frames import (
    AnyFrame,
    FunctionCallResultFrame,
    LLMFullResponseEndFrame,
    LLMTextFrame,
    TranscriptionFrame,
)
from frameledger.record import decode
from frameledger_services import access
from frameledger_services.database_types import Connection
from frameledger_services.event_log.consumer import consumer, to_record
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.group_member import MAX_RECORDS
from frameledger_services.projector.row_values import at
from frameledger_services.settings import Settings
from frameledger_services.store import binary_copy, tables
from frameledger_services.store.frame_ids import frame_uuid

FRAMES = tables.frames.to_metadata(MetaData(), name="line_frames")
MESSAGES = tables.messages.to_metadata(MetaData(), name="line_messages")

_FRAME_COLUMNS = (
    "context_id",
    "version",
    "frame_id",
    "logged_at",
    "offset",
    "partition",
    "type",
    "run_id",
    "tool_call_id",
    "payload",
)
_MESSAGE_COLUMNS = ("context_id", "position", "valid_from", "role", "text", "message")

_TABLES = """
    CREATE TABLE line_frames AS
    SELECT
        context_id, version, frame_id, logged_at, recorded_at, "offset", partition, type, run_id, tool_call_id, payload
    FROM frames WITH NO DATA;
    ALTER TABLE line_frames ADD PRIMARY KEY (context_id, version);
    ALTER TABLE line_frames ALTER recorded_at SET DEFAULT clock_timestamp();
    CREATE TABLE line_messages AS
    SELECT context_id, position, valid_from, role, text, message FROM messages WITH NO DATA;
    ALTER TABLE line_messages ADD PRIMARY KEY (context_id, position);
    CREATE TABLE line_heads (context_id text COLLATE "C" PRIMARY KEY, version bigint);
    CREATE TABLE line_offsets (partition int PRIMARY KEY, next_offset bigint);
"""

_HEADS = """
    INSERT INTO line_heads SELECT * FROM unnest(%s::text[], %s::bigint[])
    ON CONFLICT (context_id) DO UPDATE SET version = excluded.version
"""

_OFFSETS = """
    INSERT INTO line_offsets SELECT * FROM unnest(%s::int[], %s::bigint[])
    ON CONFLICT (partition) DO UPDATE SET next_offset = excluded.next_offset
"""


class Heads:
    """The conversations so far: the numbers of frames and messages of each, and the text of the open response."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        self._texts: dict[str, list[str]] = {}

    def next_version(self, context_id: str) -> int:
        version = self.versions[context_id] = self.versions.get(context_id, 0) + 1
        return version

    def next_message(self, context_id: str, frame: AnyFrame) -> tuple[int, dict[str, Any]] | None:
        """Returns the message that this frame completes, with its position; None if it completes none."""
        match frame:
            case LLMTextFrame():
                self._texts.setdefault(context_id, []).append(frame.text)
                return None
            case TranscriptionFrame():
                message = {"role": "user", "content": frame.text}
            case FunctionCallResultFrame():
                message = {"role": "tool", "content": orjson.dumps(frame.result).decode()}
            case LLMFullResponseEndFrame():
                message = {"role": "assistant", "content": "".join(self._texts.pop(context_id, ()))}
            case _:
                return None
        position = self._positions[context_id] = self._positions.get(context_id, 0) + 1
        return position, message


async def project(settings: Settings) -> None:
    """Read the topic from its beginning to its current end, into tables that this creates."""
    topic = TopicNames(settings.topic_prefix).frames
    async with await AsyncConnection.connect(
        access.database_address(settings), autocommit=True
    ) as connection:
        binary_copy.prepare(connection)
        await connection.execute(_TABLES)
        client = consumer(settings, name="frameledger-straight-line")
        await client.start()
        try:
            await _project(client, connection, topic)
        finally:
            await client.stop()


async def _project(client: Any, connection: Connection, topic: str) -> None:
    partitions = await _partitions(client, topic)
    places = [TopicPartition(topic, partition) for partition in partitions]
    client.assign(places)
    for place in places:
        client.seek(place, 0)
    left = sum((await client.end_offsets(places)).values())
    heads = Heads()
    while left > 0:
        fetched = await client.getmany(timeout_ms=500, max_records=MAX_RECORDS)
        left -= await _store(connection, heads, fetched)


async def _partitions(client: Any, topic: str) -> list[int]:
    client.subscribe([topic])
    await client._client.force_metadata_update()
    partitions = sorted(client.partitions_for_topic(topic))
    client.unsubscribe()
    return partitions


async def _store(
    connection: AsyncConnection[psycopg.rows.TupleRow], heads: Heads, fetched: dict[Any, list[Any]]
) -> int:
    frames: list[tuple[Any, ...]] = []
    messages: list[tuple[Any, ...]] = []
    touched: set[str] = set()
    offsets: dict[int, int] = {}
    for place, some in fetched.items():
        for received in some:
            record = to_record(received)
            key, value = record.key or b"", record.value or b""
            context_id, frame = key.decode(), decode(value)
            version = heads.next_version(context_id)
            touched.add(context_id)
            placed = heads.next_message(context_id, frame)
            if placed is not None:
                position, message = placed
                text = message["content"]
                messages.append((context_id, position, version, message["role"], text, orjson.dumps(message)))
            frames.append(
                (
                    context_id,
                    version,
                    frame_uuid(frame.id or f"{place.partition}:{record.offset}"),
                    at(record.timestamp_ms or 0),
                    record.offset,
                    record.partition,
                    frame.type,
                    getattr(frame, "run_id", None),
                    getattr(frame, "tool_call_id", None),
                    value,
                )
            )
            offsets[place.partition] = record.offset + 1
    async with connection.transaction():
        await binary_copy.copy_in(connection, FRAMES, _FRAME_COLUMNS, frames)
        await binary_copy.copy_in(connection, MESSAGES, _MESSAGE_COLUMNS, messages)
        await connection.execute(_HEADS, (list(touched), [heads.versions[one] for one in touched]))
        await connection.execute(_OFFSETS, (list(offsets), list(offsets.values())))
    return len(frames)


if __name__ == "__main__":
    asyncio.run(project(Settings.from_env(look_for_running=False)))

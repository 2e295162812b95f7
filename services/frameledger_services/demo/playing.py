"""Playback: the participants publish, services answer, and SQL is read while the conversation grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from frameledger.evolve.changes import Message
from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger.record import LogPosition, Record
from frameledger_services.client import Client, StoredFrame, with_defaults
from frameledger_services.client.reading import newest_version, next_offset
from frameledger_services.database_types import Connection
from frameledger_services.demo import people
from frameledger_services.demo.harbour import Harbour
from frameledger_services.demo.recording import Line, Stage
from frameledger_services.demo.talk import NotSeenError, Talk
from frameledger_services.event_log import reader
from frameledger_services.settings import Settings

POLL_SECONDS = 0.05
PATIENCE = 30.0
"""Seconds within which services must finish after the end of the conversation."""


@dataclass(frozen=True, slots=True)
class Written:
    """A message that a frame wrote; `rewritten` if it replaced an earlier one."""

    position: int
    message: Message
    rewritten: bool


@dataclass(frozen=True, slots=True)
class ShownFrame:
    """A stored frame, and the context after it."""

    frame: StoredFrame
    written: tuple[Written, ...]
    messages: int
    tools: int
    """Number of tools in the context."""

    note: str
    delay: float
    """Seconds since it was published, by the clock of this machine."""


@dataclass(frozen=True, slots=True)
class Played:
    """The records of the finished conversation on the log, and the frames read from SQL."""

    log: tuple[Record, ...]
    frames: tuple[ShownFrame, ...]
    left_out: int
    """Number of recorded lines whose condition was not met."""


async def play(
    settings: Settings,
    client: Client,
    connection: Connection,
    context_id: ContextId,
    lines: Sequence[Line],
    stage: Stage,
    harbour: Harbour,
    *,
    speed: float,
    show: Callable[[ShownFrame], None],
    kill: Callable[[], None],
) -> Played:
    """Play the recorded conversation. Returns when all of it is stored and no claim of it is open.

    `speed`: speed factor of the recorded people. `show` is called with each stored frame, in order; `kill` is called at
    most once, during an order. `connection` is for reading. Raises `NotSeenError`, alone or in a group, and what
    `client` raises.
    """
    talk = Talk(context_id)
    stand = _Stand(client, talk)
    stored_frames: list[ShownFrame] = []

    async def watch() -> None:
        async with aclosing(client.follow(context_id)) as frames:
            async for frame in frames:
                stored_frames.append(await _shown(connection, frame, stand.notes.get(frame.frame_id, "")))
                show(stored_frames[-1])
                await talk.take(frame)

    async with asyncio.TaskGroup() as tasks:
        others = [
            tasks.create_task(watch()),
            tasks.create_task(people.speak(talk, stand.publish, speed=speed)),
            tasks.create_task(people.confirm(talk, stand.publish, speed=speed)),
            tasks.create_task(people.find_out(talk, harbour, stand.publish, speed=speed)),
            tasks.create_task(people.have_an_accident(talk, harbour, kill)),
        ]
        left_out = await people.follow_the_recording(talk, lines, stage, stand.publish, speed=speed)
        await talk.until("it has ended", lambda: talk.ended)
        assert stand.first is not None
        log = await _read_back(settings, connection, talk, stand.first)
        for task in others:
            task.cancel()
    return Played(tuple(log), tuple(stored_frames), left_out)


class _Stand:
    """Publishes the frames of all participants."""

    def __init__(self, client: Client, talk: Talk) -> None:
        self.first: LogPosition | None = None
        self.notes: dict[UUID, str] = {}
        self._client = client
        self._talk = talk
        self._sent: dict[UUID, AnyFrame] = {}

    async def publish(
        self, frame: AnyFrame, source: str, note: str, *, causation_id: UUID | None = None
    ) -> None:
        frame = with_defaults(frame)
        frame_id = UUID(frame.id)
        if frame_id in self._sent:
            # As after a lost acknowledgement: the same bytes again.
            frame = self._sent[frame_id]
        else:
            self._sent[frame_id] = frame
            self.notes[frame_id] = note
            self._talk.published(frame_id)
        # The first one waits for connections, and for a projector that takes over its partitions.
        places = await self._client.publish(
            self._talk.context_id,
            frame,
            source=source,
            causation_id=causation_id,
            wait=self.first is None,
        )
        self.first = self.first or places[0]


async def _shown(connection: Connection, frame: StoredFrame, note: str) -> ShownFrame:
    at = {"id": frame.context_id, "version": frame.version}
    written = await (await connection.execute(_WRITTEN, at)).fetchall()
    [(messages, tools)] = await (await connection.execute(_COUNTS, at)).fetchall()
    delay = (datetime.now(UTC) - (frame.produced_at or frame.logged_at)).total_seconds()
    return ShownFrame(frame, tuple(Written(*row) for row in written), messages, tools, note, delay)


async def _read_back(
    settings: Settings, connection: Connection, talk: Talk, first: LogPosition
) -> list[Record]:
    """Wait until no worker has a claim and all frames are stored. Returns all records of the conversation."""
    log: list[Record] = []
    try:
        async with asyncio.timeout(PATIENCE):
            while (await (await connection.execute(_WORKING, (talk.context_id,))).fetchall()) != [(0,)]:
                await asyncio.sleep(POLL_SECONDS)
            log = await reader.records_from(settings, first)
            while (await next_offset(connection, first.topic, first.partition) or 0) <= log[-1].offset:
                await asyncio.sleep(POLL_SECONDS)
            while talk.version < await newest_version(connection, talk.context_id):
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise NotSeenError(
            f'{talk.context_id} still has open claims {PATIENCE:.0f} s after its end: `frameledger sql "SELECT * FROM '
            f"claims WHERE context_id = '{talk.context_id}'\"` lists them."
        ) from None
    return [record for record in log if record.key == talk.context_id.encode()]


_WORKING = "SELECT count(*) FROM claims WHERE context_id = %s AND finished_at IS NULL"

_WRITTEN = """
    SELECT position, message, EXISTS (
        SELECT FROM messages AS before
        WHERE before.context_id = said.context_id AND before.era = said.era AND before.position = said.position
            AND before.valid_to = said.valid_from
    )
    FROM messages AS said
    WHERE context_id = %(id)s AND valid_from = %(version)s
    ORDER BY era, position
"""

_COUNTS = """
    SELECT json_array_length(at -> 'messages'), json_array_length(at -> 'tools')
    FROM context_at(%(id)s, %(version)s) AS at
"""

"""Playing: frames are published when they are due, and meanwhile read from SQL as they become visible there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from frameledger.evolve.changes import Message
from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger_services.client import Client, StoredFrame, completed
from frameledger_services.demo.recording import Cue

PATIENCE = 30.0
"""Seconds that the last frame has to become visible."""


class NotSeenError(Exception):
    """Not everything that was published became visible in time."""


@dataclass(frozen=True, slots=True)
class Written:
    """A message that a frame has written; `rewritten` if it took the place of another one."""

    position: int
    message: Message
    rewritten: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame as SQL shows it, and the context after it."""

    frame: StoredFrame
    written: tuple[Written, ...]
    messages: int
    tools: int
    """How many the context has."""

    note: str
    delay: float
    """Seconds since it was given to the producer."""


@dataclass(frozen=True, slots=True)
class Played:
    """All frames that were published, repetitions too, and all that were seen."""

    published: tuple[AnyFrame, ...]
    seen: tuple[Seen, ...]


async def play(
    client: Client,
    connection: AsyncConnection[Any],
    context_id: ContextId,
    cues: Sequence[Cue],
    *,
    speed: float,
    show: Callable[[Seen], None],
) -> Played:
    """Publish the cues as they are due, `speed` times as fast as recorded, and return when SQL has shown all of them.

    `show` is called with each frame as soon as it is visible, in order. `connection` is one for reading. Raises
    `NotSeenError`, alone or in a group, and what `client` raises.
    """
    stage = _Stage(asyncio.get_running_loop().time)
    expected = len({cue.frame.id for cue in cues})
    seen: list[Seen] = []
    within = sum(cue.after for cue in cues) / speed + PATIENCE
    try:
        async with asyncio.timeout(within), asyncio.TaskGroup() as tasks:
            tasks.create_task(stage.publish(client, context_id, cues, speed))
            async with aclosing(client.follow(context_id)) as frames:
                while len(seen) < expected:
                    frame = await anext(frames)
                    cue, delay = stage.recognise(frame)
                    at = {"id": context_id, "version": frame.version}
                    written = await (await connection.execute(_WRITTEN, at)).fetchall()
                    [(messages, tools)] = await (await connection.execute(_COUNTS, at)).fetchall()
                    messages_written = tuple(Written(*row) for row in written)
                    seen.append(Seen(frame, messages_written, messages, tools, cue.note, delay))
                    show(seen[-1])
    except TimeoutError:
        raise NotSeenError(
            f"Of {expected} frames {len(stage.published)} were published and {len(seen)} seen in SQL, "
            f"{within:.0f} s after the first."
        ) from None
    return Played(tuple(stage.published), tuple(seen))


class _Stage:
    """What was published, and when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.published: list[AnyFrame] = []
        self._clock = clock
        self._sent: dict[UUID, tuple[Cue, AnyFrame, float]] = {}

    async def publish(self, client: Client, context_id: ContextId, cues: Sequence[Cue], speed: float) -> None:
        due = self._clock()
        for cue in cues:
            due += cue.after / speed
            await asyncio.sleep(max(0.0, due - self._clock()))
            frame_id = UUID(cue.frame.id)
            if frame_id in self._sent:
                # As it happens when an acknowledgement is lost: the same bytes once more.
                frame = self._sent[frame_id][1]
            else:
                frame = completed(cue.frame)
                self._sent[frame_id] = cue, frame, self._clock()
            self.published.append(frame)
            first = len(self.published) == 1
            await client.publish(context_id, frame, source=cue.by, wait=first)
            if first:
                # It waits for connections, and for a projector that has just begun to take its partitions over.
                due = self._clock()

    def recognise(self, frame: StoredFrame) -> tuple[Cue, float]:
        """The cue that became visible, and how long that took."""
        if frame.frame_id not in self._sent:
            raise NotSeenError(f"SQL shows a frame that nobody has published: {frame.frame_id}.")
        cue, _, at = self._sent[frame.frame_id]
        return cue, self._clock() - at


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

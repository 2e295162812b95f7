"""The hub: all streams of this process, on one connection that listens and one that reads.

A follower asks for the frames after its cursor when its client has read the previous ones; so nothing is queued for a
slow client. A follower that has asked waits until frames may have been stored: a projector's notification wakes the
followers of the conversations that it names, and their frames are read for all of them in one statement, at most once
in `TICK_SECONDS`. Followers with the same cursor share the same bytes.

A notification may be lost, and some changes have none; so all followers are woken from time to time, and by
notifications that name no conversations. During an outage of the database followers wait; nothing is lost, because a
cursor moves only when its follower has received the frames.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psycopg

from frameledger.errors import FrameledgerError, TransientError
from frameledger_services import logs, transient
from frameledger_services.database_types import Connection
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.gateway.live import stream_events
from frameledger_services.gateway.live.follower import Chunk, Follower
from frameledger_services.gateway.metrics import StreamMetrics
from frameledger_services.settings import Settings
from frameledger_services.store import connections, following, progress_channel
from frameledger_services.store.connections import Connections
from frameledger_services.store.following import StreamCursor, StreamReading
from frameledger_services.store.progress_channel import Notification
from frameledger_services.supervision import Backoff

TICK_SECONDS = 0.02
WAKE_SECONDS = 5.0
"""Interval at which all followers are woken while notifications are received."""

UNNOTIFIED_WAKE_SECONDS = 1.0
"""Interval at which all followers are woken while no notifications are received."""

MAX_FOLLOWERS = 2_000
MAX_FRAMES = 500
MAX_BYTES = 1 << 20
"""Maximum bytes that one follower receives at once."""

STATEMENT_CURSORS = 256
STATEMENT_BYTES = 16 << 20
MIN_BYTES = 64 << 10
"""Limits of one statement: if many cursors are far behind, each receives less at once, but at least `MIN_BYTES`."""

_NAME = "frameledger-gateway"

_log = logs.get_logger("gateway")


class TooManyFollowersError(TransientError):
    """This process has reached its maximum number of followers.

    Remedy: Follow again later, or at another gateway.
    """


@dataclass(frozen=True, slots=True)
class _Place:
    """A position in a conversation. Followers at the same position receive the same bytes."""

    cursor: StreamCursor
    is_greeted: bool


class Hub:
    """All followers of this process. One connection listens for notifications and one reads for all of them."""

    def __init__(self, settings: Settings, metrics: StreamMetrics | None = None) -> None:
        """Does not connect before `run`."""
        self.metrics = metrics or StreamMetrics()
        self.metrics.watch(lambda: len(self._followers))
        self._settings = settings
        self._database = Connections(settings, _NAME)
        self._topic = TopicNames(settings.topic_prefix).frames
        self._followers: set[Follower] = set()
        self._by_conversation: defaultdict[str, set[Follower]] = defaultdict(set)
        """The followers by the hash of the conversation's id, as in notifications."""

        self._due: dict[Follower, None] = {}
        """The followers to read for, in the order in which they were woken."""

        self._wake = asyncio.Event()
        self._is_needed = asyncio.Event()
        self.is_listening = False
        """Whether projectors' notifications are received."""

        self._closed = False

    def follow(
        self,
        context_id: str,
        after: int | None,
        types: Iterable[str] | None = None,
    ) -> Follower:
        """Returns a follower of a conversation that starts after the version `after`, or after the newest if it is
        None. With `types` it receives only frames of these types.

        Raises `TooManyFollowersError`. After `close` the follower is closed from the beginning.
        """
        self.check_room()
        type_filter = None if types is None else following.TYPES_SEPARATOR.join(sorted(set(types)))
        follower = Follower(self, StreamCursor(context_id, after, type_filter))
        if not self._closed:
            self._is_needed.set()
            self._followers.add(follower)
            self._by_conversation[follower.conversation].add(follower)
        return follower

    def check_room(self) -> None:
        """Raise `TooManyFollowersError` if there is no room for another follower now."""
        if len(self._followers) >= MAX_FOLLOWERS:
            raise TooManyFollowersError

    def close(self) -> None:
        """Close all followers, and accept no more."""
        self._closed = True
        for follower in list(self._followers):
            follower.close()

    @property
    def is_closed(self) -> bool:
        """Returns whether it accepts no more followers."""
        return self._closed

    async def run(self) -> None:
        """Run until cancelled; connects for the first follower. Waits through outages and other errors of the
        database."""
        await self._is_needed.wait()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                tasks.create_task(self._wake_all())
                tasks.create_task(self._read())
        finally:
            await self._database.close()

    def has(self, follower: Follower) -> bool:
        """Returns whether the follower is one of this hub's, and not closed."""
        return follower in self._followers

    def leave(self, follower: Follower) -> None:
        """Remove a follower."""
        self._followers.discard(follower)
        self._due.pop(follower, None)
        group = self._by_conversation[follower.conversation]
        group.discard(follower)
        if not group:
            del self._by_conversation[follower.conversation]

    def wake(self, follower: Follower) -> None:
        """Wake the follower: there may be frames after its cursor."""
        follower.has_news = True
        if follower.is_asking:
            self._due[follower] = None
            self._wake.set()

    def moved(self, told: Notification) -> None:
        """Wake the followers of the conversations that a notification names; all followers if it names none."""
        if told.topic and told.topic != self._topic:
            return
        named = told.conversations
        for group in [self._followers] if named is None else map(self._by_conversation.get, named):
            for follower in group or ():
                self.wake(follower)

    async def _listen(self) -> None:
        """Receive projectors' notifications."""
        backoff = Backoff()
        while True:
            try:
                async with await connections.connect(self._settings, _NAME) as connection:
                    async for payload in progress_channel.notifications(connection):
                        self.is_listening = True
                        backoff.reset()
                        # The first one names no conversations: it wakes all, for frames that were stored while no
                        # notifications were received.
                        self.moved(progress_channel.read_notification(payload))
            except (psycopg.Error, FrameledgerError) as error:
                self.is_listening = False
                seconds = backoff.next()
                _log.warning("gateway.not_listening", reason=transient.reason(error), again_in=seconds)
                await asyncio.sleep(seconds)

    async def _wake_all(self) -> None:
        """Wake all followers from time to time."""
        while True:
            await asyncio.sleep(WAKE_SECONDS if self.is_listening else UNNOTIFIED_WAKE_SECONDS)
            self.moved(Notification())

    async def _read(self) -> None:
        """Give the waiting followers the frames after their cursors."""
        loop, backoff, last = asyncio.get_running_loop(), Backoff(), float("-inf")
        while True:
            await self._wake.wait()
            await asyncio.sleep(last + TICK_SECONDS - loop.time())
            last = loop.time()
            self._wake.clear()
            places = self._take()
            try:
                readings = await self._database.read(self._read_all, [place.cursor for place in places])
            except FrameledgerError as error:
                seconds = backoff.next()
                _log.warning("gateway.streams_retrying", reason=str(error), again_in=seconds)
                self._put_back(places)
                await asyncio.sleep(seconds)
            else:
                backoff.reset()
                frame_count = behind = 0
                for (place, followers), reading in zip(places.items(), readings, strict=True):
                    self._give(place, followers, reading)
                    frame_count += len(reading.frames) * len(followers)
                    if reading.head is not None and place.cursor.version is not None:
                        behind = max(behind, reading.head.version - place.cursor.version)
                self.metrics.sent(frame_count, behind)
            if self._due:
                self._wake.set()

    def _take(self) -> Mapping[_Place, Sequence[Follower]]:
        """Remove followers from the waiting list, as many as one statement reads for, and return them."""
        places: defaultdict[_Place, list[Follower]] = defaultdict(list)
        for follower in list(self._due):
            if not follower.is_asking:
                # Its wait has ended since; `has_news` is kept.
                del self._due[follower]
                continue
            place = _Place(follower.cursor, follower.is_greeted)
            if place in places or len(places) < STATEMENT_CURSORS:
                places[place].append(follower)
                del self._due[follower]
                # Frames that are announced from here on may be missing from this read.
                follower.has_news = False
        return places

    def _put_back(self, places: Mapping[_Place, Sequence[Follower]]) -> None:
        for followers in places.values():
            for follower in followers:
                self.wake(follower)

    async def _read_all(
        self, connection: Connection, cursors: Sequence[StreamCursor]
    ) -> Sequence[StreamReading]:
        if not cursors:
            return []
        each = max(MIN_BYTES, min(MAX_BYTES, STATEMENT_BYTES // len(cursors)))
        return await following.read(connection, cursors, most_frames=MAX_FRAMES, most_bytes=each)

    def _give(self, place: _Place, followers: Sequence[Follower], reading: StreamReading) -> None:
        chunk = assemble(place.cursor, reading, is_greeted=place.is_greeted)
        if chunk is None:
            return
        for follower in followers:
            if not self.has(follower):
                continue
            if follower.is_asking and follower.cursor == place.cursor:
                follower.give(chunk)
            else:
                self.wake(follower)


def assemble(cursor: StreamCursor, reading: StreamReading, *, is_greeted: bool) -> Chunk | None:
    """Returns the chunk for followers at this cursor, or None if there is nothing new for them. Followers that are not
    greeted yet get one in any case."""
    head, events = reading.head, []
    newest = 0 if head is None else head.version
    version = newest if cursor.version is None else cursor.version
    erased = reading.erased_version
    if erased is not None and erased != cursor.erased_version and 0 < version <= erased:
        events.append(stream_events.gone(erased))
        version = erased
    elif version > max(newest, erased or 0):
        # There are no frames after such a cursor; the next read returns those from the beginning.
        events.append(stream_events.reset(newest))
        version = 0
    for frame in reading.frames:
        if frame.payload is not None:
            events.append(stream_events.frame(frame))
        version = frame.version
    is_all = version >= newest
    if head is not None and is_all and (version != cursor.version or not is_greeted):
        events.append(stream_events.head(head))
    if is_greeted and not events and version == cursor.version:
        return None
    return Chunk(
        b"".join(events),
        version,
        is_all=is_all,
        exists=head is not None,
        erased_version=erased,
        ended=head is not None and head.ended,
        frames=reading.frames,
        head=head,
    )

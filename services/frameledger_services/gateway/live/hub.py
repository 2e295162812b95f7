"""The hub: all streams of this process, on one connection that listens and one that reads.

A follower asks for what is behind its cursor when its client has taken what it was given before; so nothing is queued
for a client that is slow. Who has asked waits until something may have come: a projector's notification wakes the
followers of the partitions that it names, and what they ask for is read for all of them in one statement, at most once
in `TICK_SECONDS`. Followers with the same cursor share what was read, as the same bytes.

A notification may be lost, and some changes have none: so from time to time everybody is woken. While the database is
away followers wait; nothing is lost, since a cursor moves only when its follower has been given what is behind it.
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
from frameledger_services.event_log.topics import TopicNames, home_partition
from frameledger_services.gateway.live import stream_events
from frameledger_services.gateway.live.follower import Chunk, Follower
from frameledger_services.gateway.metrics import StreamMetrics
from frameledger_services.settings import Settings
from frameledger_services.store import connections, following, projections
from frameledger_services.store.connections import Connections
from frameledger_services.store.following import Reading, StreamCursor
from frameledger_services.supervision import Backoff

TICK_SECONDS = 0.02
LOOK_SECONDS = 5.0
"""How often everybody is woken while notifications are received."""

BLIND_LOOK_SECONDS = 1.0
"""The same while they are not."""

MOST_FOLLOWERS = 2_000
MOST_FRAMES = 500
MOST_BYTES = 1 << 20
"""What one follower is given at once, at most."""

STATEMENT_CURSORS = 256
STATEMENT_BYTES = 16 << 20
LEAST_BYTES = 64 << 10
"""Limits of one statement: if many cursors are far behind, each is given less at once, but no less than this."""

_NAME = "frameledger-gateway"

_log = logs.get_logger("gateway")


class TooManyFollowersError(TransientError):
    """This process has as many followers as it may have.

    Remedy: Follow again later, or at another gateway.
    """


@dataclass(frozen=True, slots=True)
class _Place:
    """What followers have in common that are given the same bytes."""

    cursor: StreamCursor
    is_greeted: bool


class Hub:
    """All followers of this process. One connection listens for notifications and one reads for all of them."""

    def __init__(self, settings: Settings, metrics: StreamMetrics | None = None) -> None:
        """Connects to nothing before it runs."""
        self.metrics = metrics or StreamMetrics()
        self.metrics.watch(lambda: len(self._followers))
        self._settings = settings
        self._database = Connections(settings, _NAME)
        self._topic = TopicNames(settings.topic_prefix).frames
        self._followers: set[Follower] = set()
        self._by_partition: defaultdict[int | None, set[Follower]] = defaultdict(set)
        self._due: dict[Follower, None] = {}
        """In the order in which they were woken."""

        self._wake = asyncio.Event()
        self._is_needed = asyncio.Event()
        self.is_listening = False
        """Projectors' notifications are received."""

        self._closed = False

    def follow(
        self,
        context_id: str,
        after: int | None,
        types: Iterable[str] | None = None,
    ) -> Follower:
        """Returns a follower of a conversation behind a version, None for the newest; of frames of some types only, if
        `types` are given.

        Raises `TooManyFollowersError`. After `close` the follower is closed from the beginning.
        """
        self.check_room()
        wanted = None if types is None else following.TYPES_SEPARATOR.join(sorted(set(types)))
        follower = Follower(self, StreamCursor(context_id, after, wanted))
        if not self._closed:
            self._is_needed.set()
            self._followers.add(follower)
            self._by_partition[None].add(follower)
        return follower

    def check_room(self) -> None:
        """Raise `TooManyFollowersError` if there is no room for one more follower now."""
        if len(self._followers) >= MOST_FOLLOWERS:
            raise TooManyFollowersError

    def close(self) -> None:
        """Close all followers, and take no more."""
        self._closed = True
        for follower in list(self._followers):
            follower.close()

    @property
    def is_closed(self) -> bool:
        """It takes no more followers."""
        return self._closed

    async def run(self) -> None:
        """Work until cancelled, from the first follower on. Outages and other errors of the database are waited out."""
        await self._is_needed.wait()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen())
                tasks.create_task(self._look())
                tasks.create_task(self._read())
        finally:
            await self._database.close()

    def has(self, follower: Follower) -> bool:
        """Returns whether it is one of this hub's, and not closed."""
        return follower in self._followers

    def leave(self, follower: Follower) -> None:
        """Forget a follower."""
        self._followers.discard(follower)
        self._due.pop(follower, None)
        self._register(follower, frozenset())

    def wake(self, follower: Follower) -> None:
        """Note that something may be behind its cursor."""
        follower.has_news = True
        if follower.is_asking:
            self._due[follower] = None
            self._wake.set()

    def moved(self, topic: str, partitions: Iterable[int]) -> None:
        """Wake the followers of partitions of a topic; of no partitions, everybody."""
        if topic and topic != self._topic:
            return
        moved = list(partitions)
        for group in [self._by_partition.get(one) for one in (*moved, None)] if moved else [self._followers]:
            for follower in group or ():
                self.wake(follower)

    async def _listen(self) -> None:
        """Receive what projectors notify."""
        backoff = Backoff()
        while True:
            try:
                async with await connections.connect(self._settings, _NAME) as connection:
                    async for payload in projections.notifications(connection):
                        self.is_listening = True
                        backoff.reset()
                        # The first one has no partitions: what came while nobody listened is looked for.
                        self.moved(*projections.read_notification(payload))
            except (psycopg.Error, FrameledgerError) as error:
                self.is_listening = False
                seconds = backoff.next()
                _log.warning("gateway.not_listening", reason=transient.reason(error), again_in=seconds)
                await asyncio.sleep(seconds)

    async def _look(self) -> None:
        """Wake everybody from time to time."""
        while True:
            await asyncio.sleep(LOOK_SECONDS if self.is_listening else BLIND_LOOK_SECONDS)
            self.moved("", ())

    async def _read(self) -> None:
        """Give those who are due what is behind their cursors."""
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
                given = behind = 0
                for (place, followers), reading in zip(places.items(), readings, strict=True):
                    self._give(place, followers, reading)
                    given += len(reading.frames) * len(followers)
                    if reading.head is not None and place.cursor.version is not None:
                        behind = max(behind, reading.head.version - place.cursor.version)
                self.metrics.gave(given, behind)
            if self._due:
                self._wake.set()

    def _take(self) -> Mapping[_Place, Sequence[Follower]]:
        """Take those who are due from the list, as many as one statement reads for."""
        places: defaultdict[_Place, list[Follower]] = defaultdict(list)
        for follower in list(self._due):
            if not follower.is_asking:
                # Its wait ended meanwhile; it still knows that there is news.
                del self._due[follower]
                continue
            place = _Place(follower.cursor, follower.is_greeted)
            if place in places or len(places) < STATEMENT_CURSORS:
                places[place].append(follower)
                del self._due[follower]
                # What is notified from here on may be missing in what is read.
                follower.has_news = False
        return places

    def _put_back(self, places: Mapping[_Place, Sequence[Follower]]) -> None:
        for followers in places.values():
            for follower in followers:
                self.wake(follower)

    async def _read_all(self, connection: Connection, cursors: Sequence[StreamCursor]) -> Sequence[Reading]:
        if not cursors:
            return []
        each = max(LEAST_BYTES, min(MOST_BYTES, STATEMENT_BYTES // len(cursors)))
        return await following.read(
            connection, self._topic, cursors, most_frames=MOST_FRAMES, most_bytes=each
        )

    def _give(self, place: _Place, followers: Sequence[Follower], reading: Reading) -> None:
        chunk = assemble(place.cursor, reading, is_greeted=place.is_greeted)
        partitions = self._partitions(place.cursor.context_id, reading)
        for follower in followers:
            if not self.has(follower):
                continue
            if partitions != follower.partitions:
                self._register(follower, partitions)
            if chunk is None:
                continue
            if follower.is_asking and follower.cursor == place.cursor:
                follower.give(chunk)
            else:
                self.wake(follower)

    def _partitions(self, context_id: str, reading: Reading) -> frozenset[int | None]:
        """Where the next frames of a conversation may come from: where its last one lies, and where its key belongs."""
        last = reading.frames[-1].partition if reading.frames else -1
        home = None if reading.partitions is None else home_partition(context_id.encode(), reading.partitions)
        return frozenset([home] if last < 0 else [home, last])

    def _register(self, follower: Follower, partitions: frozenset[int | None]) -> None:
        for left in follower.partitions - partitions:
            group = self._by_partition[left]
            group.discard(follower)
            if not group:
                del self._by_partition[left]
        for entered in partitions - follower.partitions:
            self._by_partition[entered].add(follower)
        follower.partitions = partitions


def assemble(cursor: StreamCursor, reading: Reading, *, is_greeted: bool) -> Chunk | None:
    """Returns what to give to who has this cursor; None for nothing, which only who was not greeted yet is told."""
    head, events = reading.head, []
    newest = 0 if head is None else head.version
    version = newest if cursor.version is None else cursor.version
    erased = reading.erased_version
    if erased is not None and erased != cursor.erased_version and 0 < version <= erased:
        events.append(stream_events.gone(erased))
        version = erased
    elif version > max(newest, erased or 0):
        # There are no frames behind such a cursor: the next reading has those from the beginning.
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

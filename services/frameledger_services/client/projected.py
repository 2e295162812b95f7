"""The signal that the tables have something new, so that whoever waits for it need not look all the time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import psycopg

from frameledger.record import Place
from frameledger_services import database
from frameledger_services.client import connections
from frameledger_services.settings import Settings
from frameledger_services.store.projections import listen, read_notification
from frameledger_services.store.schema import SchemaError

LOOK_AGAIN_SECONDS = 0.25
"""What a lost notification costs one who waits for a frame of his own."""

FOLLOWERS_LOOK_AGAIN_SECONDS = 5.0
"""What it costs one who follows a conversation, while notifications are listened to."""

CONNECT_AGAIN_SECONDS = 1.0


class Projected:
    """Wakes those who wait when a projector says that it stored something. It may wake them for nothing.

    To miss nothing, take the signal first, then look, then wait:

        signal = projected.signal()
        if await look():
            return
        await projected.wait(signal, within=...)
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._signal: asyncio.Future[None] | None = None
        self._offsets: dict[tuple[str, int], int] = {}
        self._tried = asyncio.Event()
        self._is_listening = False

    def signal(self) -> asyncio.Future[None]:
        """What the next notification from now on sets."""
        if self._signal is None or self._signal.done():
            self._signal = asyncio.get_running_loop().create_future()
        return self._signal

    async def wait(self, signal: asyncio.Future[None], *, within: float = LOOK_AGAIN_SECONDS) -> None:
        """Return at the signal, or when it is time to look again without one."""
        await asyncio.wait([signal], timeout=min(within, LOOK_AGAIN_SECONDS))

    def offset(self, topic: str, partition: int) -> int | None:
        """Up to where a projector said that it is in a partition; None if none has since we listen."""
        return self._offsets.get((topic, partition))

    async def moved(self, topic: str, partition: int, seen: int | None) -> None:
        """Return when a projector is elsewhere in a partition than `offset` said before the last look, or when it is
        time to look without being told."""
        within = FOLLOWERS_LOOK_AGAIN_SECONDS if self._is_listening else LOOK_AGAIN_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.offset(topic, partition) == seen:
                    await asyncio.shield(self.signal())

    async def passed(self, place: Place, *, within: float) -> None:
        """Return when a projector says that it is past a place, or when it is time to look whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within, LOOK_AGAIN_SECONDS)):
                while self._offsets.get((place.topic, place.partition), 0) <= place.offset:
                    await asyncio.shield(self.signal())

    async def started(self) -> None:
        """Return when notifications are listened to, or cannot be for now: waiting works without them too."""
        await self._tried.wait()

    async def listen(self) -> None:
        """Listen until cancelled, and connect again after every failure."""
        while True:
            with suppress(psycopg.Error, SchemaError):
                await self._listen()
            self._tried.set()
            await asyncio.sleep(CONNECT_AGAIN_SECONDS)

    async def _listen(self) -> None:
        connection = await connections.connect(self._settings)
        async with connection:
            self._offsets.clear()
            connection.add_notify_handler(self._told)
            await listen(connection)
            self._is_listening = True
            self._tried.set()
            try:
                await _hear(connection)
            finally:
                self._is_listening = False

    def _told(self, notification: psycopg.Notify) -> None:
        topic, offsets = read_notification(notification.payload)
        self._offsets.update({(topic, partition): offset for partition, offset in offsets.items()})
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)


async def _hear(connection: psycopg.AsyncConnection[Any]) -> None:
    """Have the connection's handlers told of notifications until it breaks, and raise why, or until cancelled.

    There may be hundreds a second. `connection.notifies()` asks the loop anew for each whether the socket can be read:
    150 us of processor time, of which this saves 80.
    """
    loop = asyncio.get_running_loop()
    libpq, socket = connection.pgconn, connection.fileno()
    broken: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            libpq.consume_input()
        except psycopg.Error as error:
            # At once: libpq has closed the socket, and its number may be another's next.
            loop.remove_reader(socket)
            broken.set_exception(error)
            return
        while (notification := libpq.notifies()) is not None:
            if libpq.notify_handler is not None:
                libpq.notify_handler(notification)

    while True:
        loop.add_reader(socket, read)
        try:
            await asyncio.wait([broken], timeout=database.LISTENERS_ASK_SECONDS)
        finally:
            if not broken.done():
                loop.remove_reader(socket)
        if broken.done():
            broken.result()
        await database.ping(connection)

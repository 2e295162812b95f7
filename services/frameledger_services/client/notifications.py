"""The projectors' progress notifications, which wake a client that waits for frames, so that it need not poll."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg

from frameledger.record import LogPosition
from frameledger_services.settings import Settings
from frameledger_services.store import connections, progress_channel
from frameledger_services.store.schema import SchemaError

POLL_SECONDS = 0.25
"""Polling interval of `publish(wait=True)` without a notification; also of `follow`, while notifications are not
received."""

FOLLOW_POLL_SECONDS = 5.0
"""Polling interval of `follow` without a notification, while they are received: one may be lost."""

RECONNECT_SECONDS = 1.0

Mark = tuple[int, int | None]


class Notifications:
    """Receives the notifications of projectors, and wakes the callers that wait for a partition.

    To miss nothing, take the mark first, then query, then wait:

        mark = notifications.mark(topic, partition)
        if await look():
            return
        await notifications.until_moved(topic, partition, mark)
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._next: asyncio.Future[None] | None = None
        self._received = self._unspecific = 0
        self._offsets: dict[tuple[str, int], int] = {}
        self._tried = asyncio.Event()
        self._is_listening = False

    def mark(self, topic: str, partition: int | None) -> Mark:
        """Returns a mark that changes when a notification may concern a partition, or with None any partition."""
        if partition is None:
            return self._received, None
        return self._unspecific, self._offsets.get((topic, partition))

    async def until_moved(
        self, topic: str, partition: int | None, mark: Mark, *, often: bool = False
    ) -> None:
        """Return when the mark has changed, or when it is time to poll: with `often` every `POLL_SECONDS`."""
        rarely = self._is_listening and not often
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_POLL_SECONDS if rarely else POLL_SECONDS):
                while self.mark(topic, partition) == mark:
                    await self._notified()

    async def until_passed(self, place: LogPosition, *, within: float) -> None:
        """Return when a projector has notified that it is past a position, or when it is time to poll."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within, POLL_SECONDS)):
                while self._offsets.get((place.topic, place.partition), 0) <= place.offset:
                    await self._notified()

    async def until_started(self) -> None:
        """Return once notifications are received, or cannot be for now: waiting works without them too."""
        await self._tried.wait()

    async def listen(self) -> None:
        """Receive until cancelled, and reconnect after every failure."""
        while True:
            with suppress(psycopg.Error, SchemaError):
                await self._listen()
            self._tried.set()
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        async with await connections.connect(self._settings) as connection:
            self._offsets.clear()
            try:
                async for payload in progress_channel.notifications(connection):
                    self._is_listening = True
                    self._tried.set()
                    self._receive(payload)
            finally:
                self._is_listening = False

    def _receive(self, payload: str) -> None:
        self._received += 1
        notification = progress_channel.read_notification(payload)
        if not notification.offsets:
            self._unspecific += 1
        self._offsets.update(
            {(notification.topic, partition): offset for partition, offset in notification.offsets.items()}
        )
        if self._next is not None and not self._next.done():
            self._next.set_result(None)

    async def _notified(self) -> None:
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        # Others wait for it too.
        await asyncio.shield(self._next)

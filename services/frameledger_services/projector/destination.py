"""A topic that outbox rows are published to. While it refuses them they stay in the outbox, and nothing else waits.

A topic that does not exist, or must not be written, needs an operator; it is no reason to stop folding, or publishing
to other topics. Of rows that wait only the places are kept in memory. When the topic accepts rows again, those are
published that are still in the outbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from frameledger_services import logs, transient
from frameledger_services.store.outbox import OutboxPlace, OutboxRow
from frameledger_services.supervision import Backoff

Send = Callable[[Sequence[OutboxRow]], Awaitable[list[OutboxRow]]]
"""Publishes rows in their order. Returns, once the broker has acknowledged them, those that are too large."""


AT_ONCE = 20
"""Rows that are read and tried again together; each may have the size of the largest record."""

_log = logs.get_logger("projector")


class Destination:
    """The rows of one topic, sent in the order in which they were added."""

    def __init__(
        self,
        topic: str,
        send: Callable[[Sequence[OutboxRow]], Awaitable[None]],
        read: Callable[[Sequence[OutboxPlace]], Awaitable[list[OutboxRow]]],
    ) -> None:
        self._topic = topic
        self._send = send
        self._read = read
        self._waiting: list[OutboxRow] = []
        self._held: deque[OutboxPlace] = deque()
        self._is_sending = False
        self._wake = asyncio.Event()

    def add(self, row: OutboxRow) -> None:
        self._waiting.append(row)
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing can be sent now: there are no rows, or the topic refuses them."""
        return not self._is_sending and (bool(self._held) or not self._waiting)

    async def run(self) -> None:
        """Send what is added, until cancelled. Raises what the database raises, and bugs."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            rows, self._waiting = self._waiting, []
            if not await self._try(rows):
                self._held.extend(row.place for row in rows)
                await self._until_it_takes_them()

    async def _until_it_takes_them(self) -> None:
        backoff = Backoff()
        while self._held:
            places = list(islice(self._held, AT_ONCE))
            if await self._try(await self._read(places)):
                for _ in places:
                    self._held.popleft()
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next())
            # Behind those that were there before.
            self._held.extend(row.place for row in self._waiting)
            self._waiting = []

    async def _try(self, rows: Sequence[OutboxRow]) -> bool:
        """Returns whether the topic accepted these rows."""
        if not rows:
            return True
        self._is_sending = True
        try:
            await self._send(rows)
        except transient.BROKER as error:
            _log.warning(
                "projector.outbox_held_back",
                to=self._topic,
                rows=len(self._held) or len(rows),
                reason=transient.reason(error),
            )
            return False
        finally:
            self._is_sending = False
        return True

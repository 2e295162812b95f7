"""Queues by key: who comes first is first, and the next one follows when it leaves."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Queues:
    """A queue for each key that somebody waits in. Of one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Place]] = {}

    @asynccontextmanager
    async def place(self, key: str) -> AsyncIterator[Place]:
        """A place behind all others of that key, taken at once, and given up at the end, first or not."""
        queue = self._queues.setdefault(key, deque())
        place = Place(queue[0].entering if queue else asyncio.Lock())
        queue.append(place)
        queue[0].become_first()
        try:
            yield place
        finally:
            queue.remove(place)
            if queue:
                queue[0].become_first()
            else:
                del self._queues[key]


class Place:
    """One place in a queue."""

    def __init__(self, entering: asyncio.Lock) -> None:
        self.entering = entering
        """What all of the queue hold in turn, in the order of their places, for what has to happen in that order
        before they are first."""

        self._first = asyncio.Event()

    async def first(self) -> None:
        """Wait until all that came before have left."""
        await self._first.wait()

    def become_first(self) -> None:
        """Nobody is before it."""
        self._first.set()

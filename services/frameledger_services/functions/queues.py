"""First-in-first-out queues by key: entries of one key are processed one after another."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Queues:
    """First-in-first-out queues by key, for one event loop."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[QueueEntry]] = {}

    @asynccontextmanager
    async def entry(self, key: str) -> AsyncIterator[QueueEntry]:
        """Yields an entry at the end of that key's queue. It is added at once and removed at the end, whether first or
        not."""
        queue = self._queues.setdefault(key, deque())
        entry = QueueEntry(queue[0].enter_lock if queue else asyncio.Lock())
        queue.append(entry)
        queue[0].become_first()
        try:
            yield entry
        finally:
            queue.remove(entry)
            if queue:
                queue[0].become_first()
            else:
                del self._queues[key]


class QueueEntry:
    """A place in a queue."""

    def __init__(self, enter_lock: asyncio.Lock) -> None:
        self.enter_lock = enter_lock
        """One lock for the whole queue, acquired in its order, for the work of each entry before it is first."""

        self._first = asyncio.Event()

    async def until_first(self) -> None:
        """Wait until all earlier entries have left."""
        await self._first.wait()

    def become_first(self) -> None:
        """Let `until_first` return."""
        self._first.set()

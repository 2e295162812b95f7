"""A cache of recently returned contexts.

In one database the context of an entity tag never changes, so cached bytes are correct: a request first reads which tag
is the newest. After an outage the database may be another one, such as a restored backup, so the cache is cleared when
the database does not respond. Entries live at most a minute, so an erased conversation is not cached for longer.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

SECONDS = 60.0
"""How long an entry is kept."""


class _Entry(NamedTuple):
    tag: str
    body: bytes
    deadline: float


class KeptContexts:
    """The newest context of some conversations, as bytes, in the memory of one event loop."""

    def __init__(self, most_bytes: int) -> None:
        """Keeps at most `most_bytes`, deleting the oldest entries first."""
        self.bytes = 0
        """The size of all entries."""

        self._most_bytes = most_bytes
        self._entries: dict[str, _Entry] = {}
        """In the order in which they were added, in which they also expire."""

        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, context_id: str) -> bool:
        return context_id in self._entries

    def get(self, context_id: str, tag: str) -> bytes | None:
        """Returns the context with this tag, or None if it is not kept. One with another tag is deleted."""
        entry = self._entries.get(context_id)
        if entry is None or entry.tag == tag:
            return None if entry is None else entry.body
        self.drop(context_id)
        return None

    def keep(self, context_id: str, tag: str, body: bytes) -> None:
        """Keep a context instead of the conversation's earlier one. One that exceeds the whole cache is not kept."""
        self.drop(context_id)
        if len(body) > self._most_bytes:
            return
        loop = asyncio.get_running_loop()
        self._entries[context_id] = _Entry(tag, body, loop.time() + SECONDS)
        self.bytes += len(body)
        while self.bytes > self._most_bytes:
            self.drop(next(iter(self._entries)))
        if self._timer is None:
            self._timer = loop.call_later(SECONDS, self._drop_old)

    def drop(self, context_id: str) -> None:
        """Delete the entry of a conversation, if there is one."""
        entry = self._entries.pop(context_id, None)
        if entry is not None:
            self.bytes -= len(entry.body)

    def clear(self) -> None:
        """Delete all entries."""
        self._entries.clear()
        self.bytes = 0

    def _drop_old(self) -> None:
        loop = asyncio.get_running_loop()
        while self._entries:
            first, entry = next(iter(self._entries.items()))
            if entry.deadline > loop.time():
                self._timer = loop.call_at(entry.deadline, self._drop_old)
                return
            self.drop(first)
        self._timer = None

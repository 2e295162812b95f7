"""One reader of a conversation, and the chunks that it receives from the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from frameledger_services.gateway.metrics import StreamEnd
from frameledger_services.store import progress_channel
from frameledger_services.store.following import StreamCursor, StreamHead
from frameledger_services.store.wanted_frames import PagedFrame

if TYPE_CHECKING:
    from frameledger_services.gateway.live.hub import Hub

ERASED, PARKED = "erased", "parked"
"""Codes of the reasons why an answer can no longer be followed."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The frames that a follower receives at once."""

    data: bytes
    """Events; empty if the conversation does not exist."""

    version: int
    """The follower's cursor after this chunk."""

    is_all: bool
    """Whether the conversation had no further frames when it was read."""

    exists: bool
    erased_version: int | None
    """The version up to which frames that the client has, or would have received, are erased; None if none are."""

    ended: bool
    """Whether the conversation is ended, unless it is reopened later."""

    frames: Sequence[PagedFrame] = ()
    """The frames in `data`, and those whose types were not requested."""

    head: StreamHead | None = None
    """The state of the conversation when it was read."""

    @property
    def lost(self) -> tuple[str, str] | None:
        """Returns why no answer can be followed any more, as a code and a sentence; None if one can."""
        if self.erased_version is not None or not self.exists:
            return ERASED, "The conversation was erased."
        if self.head is not None and self.head.status == "parked":
            return PARKED, "The conversation is parked: its newest frames are stored and not folded."
        return None


class Follower:
    """One reader of one conversation. `Hub.follow` creates it; `close` it when its client is gone."""

    def __init__(self, hub: Hub, cursor: StreamCursor) -> None:
        self.cursor = cursor
        self.is_greeted = False
        """Whether it has received its first chunk, which may be empty."""

        self.has_news = True
        """Whether there may be frames after its cursor."""

        self.conversation = progress_channel.hash_of(cursor.context_id)
        """The hash of its conversation's id, as in notifications."""

        self._hub = hub
        self._waiting: asyncio.Future[Chunk | None] | None = None

    async def next(self, within: float) -> Chunk | None:
        """Returns the frames after the cursor and moves the cursor past them; the first call also returns if there are
        none. Returns None after `within` seconds, and when the follower is closed."""
        loop = asyncio.get_running_loop()
        if self.is_closed:
            return None
        waiting: asyncio.Future[Chunk | None] = loop.create_future()
        self._waiting = waiting
        timer = loop.call_later(within, _resolve, waiting, None)
        if self.has_news:
            self._hub.wake(self)
        try:
            chunk = await waiting
        finally:
            timer.cancel()
            self._waiting = None
        if chunk is not None:
            self.is_greeted = True
            self.has_news = self.has_news or not chunk.is_all
            self.cursor = replace(self.cursor, version=chunk.version, erased_version=chunk.erased_version)
        return chunk

    def close(self) -> None:
        """Stop following. A pending `next` returns None. Closing twice does nothing."""
        self._hub.leave(self)
        self.give(None)

    def count_end(self, why: StreamEnd) -> None:
        """Count the end of this reader's stream."""
        self._hub.metrics.closed("closing" if self._hub.is_closed else why)

    @property
    def is_closed(self) -> bool:
        return not self._hub.has(self)

    @property
    def is_asking(self) -> bool:
        return self._waiting is not None and not self._waiting.done()

    def give(self, chunk: Chunk | None) -> None:
        """Return a chunk from a pending `next`."""
        if self._waiting is not None:
            _resolve(self._waiting, chunk)


def _resolve(waiting: asyncio.Future[Chunk | None], chunk: Chunk | None) -> None:
    if not waiting.done():
        waiting.set_result(chunk)

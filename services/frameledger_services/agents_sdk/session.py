"""`FrameledgerSession`: a session of the OpenAI Agents SDK, stored as a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from frameledger.errors import TransientError
from frameledger.frames import (
    AnyFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
)
from frameledger_services.agents_sdk.items import item_of, message_of
from frameledger_services.agents_sdk.mirror import mirror_frame
from frameledger_services.client import (
    ConversationParkedError,
    Conversations,
    FrameRejectedError,
    FramesUnacknowledgedError,
    NoSuchContextError,
    NotVisibleError,
    PublishedFrame,
    StoredContext,
    with_defaults,
)

WITHIN = 30.0
"""Default timeout of a method in seconds."""

PAUSE_SECONDS = 0.5
"""Pause after an error that comes at once, as when a broker refuses connections."""

_T = TypeVar("_T")


class FrameledgerSession:
    """The history of a conversation for the SDK's `Runner.run(..., session=...)`.

    Each change is visible when its method returns, also to sessions with the same id in other processes. It counts
    once, however often it was published, and is atomic if the process dies. A cancelled method completes its change
    first. Removed items stay readable at the versions that had them.

    In a parked conversation all methods raise `ConversationParkedError`, because the newest items are not known. A
    change that the projector rejects raises `FrameRejectedError`, for example after an erasure if the setting
    `erased_ids` refuses the id.
    """

    def __init__(self, session_id: str, client: Conversations, *, within: float = WITHIN) -> None:
        """`session_id` is the conversation. The caller closes the client; many sessions can share it. Methods raise
        what `Client.publish` and `Client.context` raise, after at most `within` seconds."""
        self.session_id = session_id
        self.session_settings: Any = None
        """The SDK's `SessionSettings`. Their `limit` is the default of `get_items`."""

        self._client = client
        self._within = within
        # With its time of production, so that its bytes are the same each time, which saves the projector a query.
        self._mirror = with_defaults(mirror_frame(session_id))

    async def get_items(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Returns the newest `limit` items, or all without a limit, oldest first. A new session has none."""
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        stored = await self._stored()
        items = [] if stored is None else [item_of(one) for one in stored.context.to_wire()["messages"]]
        if limit is None or limit < 0:
            return items
        return items[len(items) - min(limit, len(items)) :]

    async def add_items(self, items: Sequence[Mapping[str, Any]]) -> None:
        """Append items atomically."""
        if items:
            messages = tuple(message_of(item) for item in items)
            await _carried_out(self._publish(LLMMessagesAppendFrame(id=str(uuid4()), messages=messages)))

    async def pop_item(self) -> dict[str, Any] | None:
        """Remove and return the newest item; None if there is none. Concurrent callers get different items."""
        return await _carried_out(self._pop())

    async def clear_session(self) -> None:
        """Remove all items. They stay readable at the versions that had them; `frameledger erase` deletes them."""
        if await self._stored() is not None:
            await _carried_out(self._publish(LLMMessagesUpdateFrame(id=str(uuid4()), messages=())))

    async def _pop(self) -> dict[str, Any] | None:
        while True:
            stored = await self._stored()
            if stored is None or not stored.positions:
                return None
            messages = stored.context.to_wire()["messages"]
            # If another caller has changed the context since, this frame is ignored and the loop reads again.
            published = await self._publish(
                LLMMessageRewriteFrame(
                    id=str(uuid4()),
                    position=stored.positions[-1],
                    message=None,
                    expected_version=stored.version,
                )
            )
            if published.reason == "position_fixed":
                published = await self._publish(
                    LLMMessagesUpdateFrame(
                        id=str(uuid4()), messages=messages[:-1], expected_version=stored.version
                    )
                )
            if published.outcome == "applied":
                return item_of(messages[-1])

    async def _stored(self) -> StoredContext | None:
        try:
            stored = await self._client.context(self.session_id)
        except NoSuchContextError:
            return None
        if stored.parked_version is not None:
            raise ConversationParkedError(self.session_id)
        return stored

    async def _publish(self, frame: AnyFrame) -> PublishedFrame:
        """Publish a frame and wait until it is stored. Retries publish the same frame, which counts once."""
        # With the mirror frame each time, because the conversation may have been erased since the last change: its next
        # life would be one that Frameledger answers. Otherwise it is a duplicate, which is not stored.
        frames = self._mirror, frame
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._within
        while True:
            left = deadline - loop.time()
            try:
                published = await self._client.publish(
                    self.session_id, *frames, wait=True, within=max(left, self._within / 10)
                )
            except TransientError as error:
                left = deadline - loop.time()
                if left <= 0:
                    raise
                if not isinstance(error, FramesUnacknowledgedError | NotVisibleError):
                    # These come after a wait; any other error may come at once.
                    await asyncio.sleep(min(PAUSE_SECONDS, left))
                continue
            if published[-1].outcome == "parked":
                raise ConversationParkedError(self.session_id, frame.type)
            if published[-1].outcome == "rejected":
                raise FrameRejectedError(self.session_id, published[-1])
            return published[-1]


async def _carried_out(change: Awaitable[_T]) -> _T:
    """Wait until a change is done, even if the caller is cancelled; then raise the cancellation. Otherwise the caller
    could not know whether a cancelled change happened."""
    task = asyncio.ensure_future(change)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        task.exception()
        raise asyncio.CancelledError
    return task.result()

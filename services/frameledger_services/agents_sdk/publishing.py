"""Frames on their way to the log, in the event loop of the application and never in its way."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import uuid4

from frameledger.record import DecodeError
from frameledger_services.agents_sdk.values import Fields
from frameledger_services.client import Conversations, EncodedFrame
from frameledger_services.client.delivery import Delivery

MOST_FRAMES = 10_000
MOST_BYTES = 16 * 1024 * 1024
AT_ONCE = 200

GAP = "openai-agents/GapFrame"

logger = logging.getLogger("frameledger.agents_sdk")


class Publishing:
    """Publishes frames in their order, each once. What does not fit into bounded memory is counted, and a frame says so
    once there is room again."""

    def __init__(
        self,
        context_id: str,
        client: Conversations,
        *,
        most_frames: int = MOST_FRAMES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._context_id = context_id
        self._client = client
        self._most_frames, self._most_bytes = most_frames, most_bytes
        self._waiting: deque[EncodedFrame] = deque()
        self._bytes = 0
        self._gap = 0
        self._task: asyncio.Task[None] | None = None
        self._delivery = Delivery[EncodedFrame](
            context_id,
            logger,
            frame=lambda one: one,
            refused=self._refused,
            waiting=lambda: f"{self.unpublished} frames wait, {self.lost} are lost",
            # The client is closed, or of another loop. The next frame tries again.
            gives_up=(RuntimeError,),
        )
        self.say = self._delivery.say
        self.lost = 0
        """Frames that are not on the log and will not be: there was no room for them, or they were refused: by
        the broker, or since nobody could read them."""

    @property
    def unpublished(self) -> int:
        """Frames that wait."""
        return len(self._waiting)

    def put(self, frames: Iterable[Fields]) -> None:
        """Let these be published. Called in an event loop; it does not wait."""
        for fields in frames:
            try:
                one = _encoded(fields)
            except (DecodeError, ValueError, TypeError) as error:
                self._refused(None, error)
                continue
            if len(self._waiting) >= self._most_frames or self._bytes + len(one.encoded) > self._most_bytes:
                self._gap += 1
                self.lost += 1
                continue
            if self._gap:
                self._append(_encoded({"type": GAP, "frames": self._gap}))
                self._gap = 0
            self._append(one)
        if self._waiting and not self._is_working():
            # Of no trace of the application's, and of none of its tasks.
            context = contextvars.Context()
            self._task = asyncio.get_running_loop().create_task(self._publish_all(), context=context)

    async def flush(self, within: float) -> bool:
        """Wait until nothing waits, for so many seconds at most. Returns whether all is on the log."""
        if self._is_working() and self._task is not None:
            await asyncio.wait([self._task], timeout=within)
        return not self._waiting

    def _is_working(self) -> bool:
        """A task of a loop that is gone works no more, whatever it says."""
        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    def _append(self, one: EncodedFrame) -> None:
        self._waiting.append(one)
        self._bytes += len(one.encoded)

    async def _publish_all(self) -> None:
        while self._waiting:
            batch = [self._waiting[place] for place in range(min(AT_ONCE, len(self._waiting)))]
            try:
                await self._delivery.publish(self._client, batch)
            except RuntimeError as error:
                self.say("nothing can be published", error)
                return
            for _ in batch:
                self._bytes -= len(self._waiting.popleft().encoded)

    def _refused(self, one: EncodedFrame | None, error: Exception) -> None:
        self.lost += 1
        self.say("a frame was refused", error)


def _encoded(fields: Fields) -> EncodedFrame:
    said = {"id": str(uuid4()), "produced_at": datetime.now(UTC).isoformat(), **fields}
    return EncodedFrame.of(json.dumps(said, allow_nan=False).encode())

"""Publishes frames in the background of the application's event loop."""

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

MAX_FRAMES = 10_000
MAX_BYTES = 16 * 1024 * 1024
AT_ONCE = 200

GAP = "openai-agents/GapFrame"

logger = logging.getLogger("frameledger.agents_sdk")


class Publishing:
    """Publishes frames in order, each once. Frames that do not fit into bounded memory are dropped and counted, and a
    gap frame reports them once there is room again."""

    def __init__(
        self,
        context_id: str,
        client: Conversations,
        *,
        max_frames: int = MAX_FRAMES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._context_id = context_id
        self._client = client
        self._max_frames, self._max_bytes = max_frames, max_bytes
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
            # The client is closed or belongs to another event loop. The next frame tries again.
            gives_up=(RuntimeError,),
        )
        self.say = self._delivery.say
        self.lost = 0
        """The number of frames that are not on the log and will not be: dropped, rejected by the broker, or invalid."""

    @property
    def unpublished(self) -> int:
        """The number of waiting frames."""
        return len(self._waiting)

    def put(self, frames: Iterable[Fields]) -> None:
        """Queue frames for publishing. Call it in an event loop; it does not block."""
        for fields in frames:
            try:
                frame = _encoded(fields)
            except (DecodeError, ValueError, TypeError) as error:
                self._refused(None, error)
                continue
            if len(self._waiting) >= self._max_frames or self._bytes + len(frame.encoded) > self._max_bytes:
                self._gap += 1
                self.lost += 1
                continue
            if self._gap:
                self._append(_encoded({"type": GAP, "frames": self._gap}))
                self._gap = 0
            self._append(frame)
        if self._waiting and not self._is_working():
            # An empty context: not part of the application's traces and tasks.
            context = contextvars.Context()
            self._task = asyncio.get_running_loop().create_task(self._publish_all(), context=context)

    async def flush(self, within: float) -> bool:
        """Wait until all frames are published, for at most `within` seconds. Returns whether they are."""
        if self._is_working() and self._task is not None:
            await asyncio.wait([self._task], timeout=within)
        return not self._waiting

    def _is_working(self) -> bool:
        """Whether the task is running. A task of another event loop counts as dead."""
        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    def _append(self, frame: EncodedFrame) -> None:
        self._waiting.append(frame)
        self._bytes += len(frame.encoded)

    async def _publish_all(self) -> None:
        while self._waiting:
            batch = [self._waiting[place] for place in range(min(AT_ONCE, len(self._waiting)))]
            try:
                await self._delivery.publish(self._client, batch)
            except RuntimeError as error:
                self.say("frames cannot be published", error)
                return
            for _ in batch:
                self._bytes -= len(self._waiting.popleft().encoded)

    def _refused(self, frame: EncodedFrame | None, error: Exception) -> None:
        self.lost += 1
        self.say("a frame was rejected", error)


def _encoded(fields: Fields) -> EncodedFrame:
    frame = {"id": str(uuid4()), "produced_at": datetime.now(UTC).isoformat(), **fields}
    return EncodedFrame.of(json.dumps(frame, allow_nan=False).encode())

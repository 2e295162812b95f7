"""Frames on their way to the log, in the event loop of the application and never in its way."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import uuid4

from frameledger.record import DecodeError
from frameledger_services.agents_sdk.values import Fields
from frameledger_services.client import Conversations, EncodedFrame, FramesRefusedError, NotPublishedError

MOST_FRAMES = 10_000
MOST_BYTES = 16 * 1024 * 1024
AT_ONCE = 200
PUBLISH_SECONDS = 10.0
PAUSE_SECONDS = 0.5
SAY_SECONDS = 60.0

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
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._gap = 0
        self._task: asyncio.Task[None] | None = None
        self._said_at = float("-inf")
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
            encoded = _encoded(fields)
            if len(self._waiting) >= self._most_frames or self._bytes + len(encoded) > self._most_bytes:
                self._gap += 1
                self.lost += 1
                continue
            if self._gap:
                self._append(_encoded({"type": GAP, "frames": self._gap}))
                self._gap = 0
            self._append(encoded)
        if self._waiting and not self._is_working():
            # Of no trace of the application's, and of none of its tasks.
            context = contextvars.Context()
            self._task = asyncio.get_running_loop().create_task(self._publish_all(), context=context)

    async def flush(self, within: float) -> bool:
        """Wait until nothing waits, for so many seconds at most. Returns whether all is on the log."""
        if self._is_working() and self._task is not None:
            await asyncio.wait([self._task], timeout=within)
        return not self._waiting

    def say(self, sentence: str, error: BaseException | None) -> None:
        """Log what went wrong, once a minute at most."""
        now = time.monotonic()
        if now - self._said_at > SAY_SECONDS:
            self._said_at = now
            logger.warning(
                "%s: %s; %d frames wait, %d are lost",
                *(self._context_id, sentence, self.unpublished, self.lost),
                exc_info=error,
            )

    def _is_working(self) -> bool:
        """A task of a loop that is gone works no more, whatever it says."""
        task = self._task
        return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()

    def _append(self, encoded: bytes) -> None:
        self._waiting.append(encoded)
        self._bytes += len(encoded)

    async def _publish_all(self) -> None:
        while self._waiting:
            batch = [self._waiting[place] for place in range(min(AT_ONCE, len(self._waiting)))]
            try:
                left = await self._publish(batch)
            except RuntimeError as error:
                # The client is closed, or of another loop. The next frame tries again.
                self.say("nothing can be published", error)
                return
            for _ in range(len(batch) - left):
                self._bytes -= len(self._waiting.popleft())
            if left:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _publish(self, batch: list[bytes]) -> int:
        """Returns how many of these, the last ones, have to be published again: whatever of them arrived counts
        once."""
        try:
            frames = [EncodedFrame.of(one) for one in batch]
            await self._client.publish(self._context_id, *frames, within=PUBLISH_SECONDS)
        except (FramesRefusedError, DecodeError, ValueError, TypeError) as error:
            if len(batch) > 1:
                # One by one, to find which.
                for done, one in enumerate(batch):
                    if await self._publish([one]):
                        return len(batch) - done
                return 0
            self.lost += 1
            self.say("a frame was refused", error)
            return 0
        except RuntimeError:
            raise
        except Exception as error:
            self.say(
                "frames could not be published yet", None if isinstance(error, NotPublishedError) else error
            )
            return len(batch)
        return 0


def _encoded(fields: Fields) -> bytes:
    said = {"id": str(uuid4()), "produced_at": datetime.now(UTC).isoformat(), **fields}
    return json.dumps(said, allow_nan=False).encode()

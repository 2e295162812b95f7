"""A batch of frames to a broker, until it has all of them: sent again after errors, mended where a frame is refused."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from frameledger.errors import FrameledgerError
from frameledger_services.client import EncodedFrame, FramesRefusedError, NotPublishedError
from frameledger_services.pipecat.pending import Waiting

PUBLISH_SECONDS = 10.0
PAUSE_SECONDS = 0.5
SAY_SECONDS = 60.0

logger = logging.getLogger("frameledger.pipecat")


class Publisher(Protocol):
    """What is needed of a client."""

    async def publish(self, context_id: str, *frames: EncodedFrame, within: float) -> object: ...

    async def close(self) -> None: ...


class Publishing:
    """Publishes the frames of one conversation, batch by batch."""

    def __init__(
        self,
        context_id: str,
        instead: Callable[[Waiting, str], Waiting],
        waiting: Callable[[], tuple[int, float]],
    ) -> None:
        """`instead` makes what is said in the place of a frame that is refused, `waiting` says how many frames wait and
        for how many seconds."""
        self._context_id = context_id
        self._instead = instead
        self._waiting = waiting
        self._said_at = 0.0
        self.refused = 0
        self.why: BaseException | None = None
        """Why the newest attempt did not succeed; None if it did."""

    async def publish(self, client: Publisher, batch: list[Waiting]) -> None:
        """Returns once the broker has all of them. They are sent again with their ids until it does: whatever of them
        had arrived counts once."""
        while batch:
            try:
                await client.publish(self._context_id, *(one.frame for one in batch), within=PUBLISH_SECONDS)
            except FramesRefusedError as error:
                batch = await self._mend(client, batch, error)
            except NotPublishedError as error:
                left = {frame.id for frame in error.frames}
                batch = [one for one in batch if one.frame.frame.id in left]
                await self._pause(error)
            except Exception as error:
                await self._pause(error)
            else:
                self.why = None
                return

    async def _mend(
        self, client: Publisher, batch: list[Waiting], error: FramesRefusedError
    ) -> list[Waiting]:
        """One by one, to find the frame that is refused; in its place its size and hash are told."""
        left = {frame.id for frame in error.frames}
        batch = [one for one in batch if one.frame.frame.id in left]
        if len(batch) > 1:
            for one in batch:
                await self.publish(client, [one])
            return []
        self.refused += 1
        logger.error("%s: the broker refuses a %s: %s", self._context_id, batch[0].kind, error)
        if batch[0].kind == "pipecat/RefusedFrame":
            return []
        return [self._instead(batch[0], str(error))]

    async def _pause(self, error: Exception) -> None:
        self.why = error
        now = time.monotonic()
        if now - self._said_at > SAY_SECONDS:
            self._said_at = now
            expected = isinstance(error, FrameledgerError | OSError)
            count, seconds = self._waiting()
            logger.warning(
                "%s: %d frames wait for %.0f s to be published, the conversation goes on: %s",
                *(self._context_id, count, seconds, error),
                exc_info=None if expected else error,
            )
        await asyncio.sleep(PAUSE_SECONDS)

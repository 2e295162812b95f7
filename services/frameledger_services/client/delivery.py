"""Background delivery of frames for programs that must not wait for Kafka: batches, retried until acknowledged.

The recorders for frameworks (`pipecat`, `agents_sdk`) share it. Each has its own queue, in a thread or a task, and its
own way to report frames that did not fit.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from frameledger.errors import FrameledgerError
from frameledger_services.client.errors import FramesRefusedError, NotPublishedError
from frameledger_services.client.frame_inputs import EncodedFrame

PUBLISH_SECONDS = 10.0
PAUSE_SECONDS = 0.5
SAY_SECONDS = 60.0

T = TypeVar("T")


class Publisher(Protocol):
    """The part of a client that delivery uses."""

    async def publish(self, context_id: str, *frames: EncodedFrame, within: float) -> object: ...


class Delivery(Generic[T]):
    """Publishes batches of frames of one conversation, in order, each frame once, and retries without limit.

    If the process dies, unacknowledged frames may or may not be on the log; they are not sent again.
    """

    def __init__(
        self,
        context_id: str,
        logger: logging.Logger,
        *,
        frame: Callable[[T], EncodedFrame],
        refused: Callable[[T, FramesRefusedError], T | None],
        waiting: Callable[[], str],
        gives_up: tuple[type[Exception], ...] = (),
    ) -> None:
        """`frame` returns the frame of an item; `refused` returns the item to publish instead of one that the broker
        rejects, or None; `waiting` returns a description of the queue for log lines. Errors in `gives_up` are raised
        instead of retried."""
        self._context_id = context_id
        self._logger = logger
        self._frame = frame
        self._refused = refused
        self._waiting = waiting
        self._gives_up = gives_up
        self._said_at = float("-inf")
        self.refused = 0
        """Frames that the broker refused."""

        self.why: BaseException | None = None
        """The error of the latest attempt; None if it succeeded."""

    async def publish(self, client: Publisher, batch: Sequence[T]) -> None:
        """Returns once the broker has acknowledged all frames. Until then they are sent again with their ids; a frame
        that has already arrived counts once."""
        left = list(batch)
        while left:
            try:
                await client.publish(self._context_id, *map(self._frame, left), within=PUBLISH_SECONDS)
            except FramesRefusedError as error:
                left = await self._publish_one_by_one(client, self._of(left, error), error)
            except NotPublishedError as error:
                left = self._of(left, error)
                await self._pause(error)
            except self._gives_up as error:
                self.why = error
                raise
            except Exception as error:
                await self._pause(error)
            else:
                self.why = None
                return

    def say(self, sentence: str, error: BaseException | None) -> None:
        """Log an error, at most once a minute."""
        now = time.monotonic()
        if now - self._said_at > SAY_SECONDS:
            self._said_at = now
            expected = isinstance(error, FrameledgerError | OSError | None)
            self._logger.warning(
                "%s: %s; %s%s",
                *(self._context_id, sentence, self._waiting(), f": {error}" if error is not None else ""),
                exc_info=None if expected else error,
            )

    def _of(self, batch: list[T], error: NotPublishedError) -> list[T]:
        left = {frame.id for frame in error.frames}
        return [one for one in batch if self._frame(one).frame.id in left]

    async def _publish_one_by_one(
        self, client: Publisher, left: list[T], error: FramesRefusedError
    ) -> list[T]:
        """Publish the frames one by one, to find the rejected one. Returns its replacement."""
        if len(left) > 1:
            for item in left:
                await self.publish(client, [item])
            return []
        self.refused += len(left)
        instead = (self._refused(one, error) for one in left)
        return [one for one in instead if one is not None]

    async def _pause(self, error: Exception) -> None:
        self.why = error
        self.say("frames could not be published yet", error)
        await asyncio.sleep(PAUSE_SECONDS)

"""The connection of `FrameledgerLLMService` to its observer: publishes requests and receives stored frames.

Requests are published by the observer, after the messages captured before them, so a worker that reads a request has
the history with which it was made. Stored frames and their outcomes are read from the tables by the observer's thread,
which passes them to the event loop of the pipeline.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from uuid import UUID

from frameledger.errors import TransientError
from frameledger.frames import AnyFrame
from frameledger_services.client import StoredFrame
from frameledger_services.pipecat.capture import Capture
from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.errors import AskingError
from frameledger_services.pipecat.numbered_ids import NumberedIds
from frameledger_services.pipecat.outbox import Outbox
from frameledger_services.pipecat.side_conversation import SideQuestion, ask_side_question
from frameledger_services.pipecat.unrecorded import SPOKEN

RETRY_SECONDS = 1.0

WAITING = "pipecat/WaitingFrame"
"""A probe without content. If it comes back, the log, the projector and the tables work."""

_FOLLOWED = {
    "LLMRunFrame",
    "LLMFullResponseStartFrame",
    "LLMFullResponseEndFrame",
    "LLMTextFrame",
    "LLMThoughtStartFrame",
    "LLMThoughtTextFrame",
    "LLMThoughtEndFrame",
    "FunctionCallsStartedFrame",
    "FunctionCallInProgressFrame",
    "FunctionCallResultFrame",
    "FunctionCallCancelFrame",
    "InterruptionFrame",
    "ErrorFrame",
    "EndFrame",
    "CancelFrame",
    WAITING,
}


class InferenceRequests:
    """The requests of one LLM service, published and followed by its observer."""

    def __init__(self, context_id: str, session: UUID, capture: Capture, outbox: Outbox) -> None:
        self._context_id = context_id
        self._ids = NumberedIds(session)
        self._capture = capture
        self._outbox = outbox
        self._settings: Fields | None = None
        self._expected_ns = 0
        self._ready = asyncio.Event()
        self._following: concurrent.futures.Future[None] | None = None

    @property
    def interruptions(self) -> int:
        """The number of interruptions of this pipeline."""
        return self._capture.interruptions

    @property
    def publish_error(self) -> BaseException | None:
        """The error of the latest attempt to publish; None if it succeeded."""
        return self._outbox.why

    def follow(self, take: Callable[[StoredFrame, AnyFrame], None], after: int | None) -> None:
        """Follow the conversation from this version on, or from the newest one. Calls `take` in this event loop."""
        loop = asyncio.get_running_loop()

        def hand_over(call: Callable[..., None], *arguments: Any) -> None:
            with suppress(RuntimeError):  # the pipeline's event loop has ended before the observer
                loop.call_soon_threadsafe(call, *arguments)

        async def follow_forever(client: Any) -> None:
            version = after
            while True:
                with suppress(TransientError):
                    if version is None:
                        version = await client.newest_version(self._context_id)
                    hand_over(self._ready.set)
                    async for stored in client.follow(self._context_id, version):
                        version = stored.version
                        if stored.type in _FOLLOWED:
                            hand_over(take, stored, stored.frame)
                await asyncio.sleep(RETRY_SECONDS)

        self._following = self._outbox.call(follow_forever)

    def stop(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()

    async def until_ready(self) -> None:
        """Return once frames that are published from now on are received. Raises `AskingError` if following failed."""
        assert self._following is not None
        if self._following.done() and (error := self._following.exception()) is not None:
            raise AskingError(f"The conversation cannot be followed: {error}") from error
        await self._ready.wait()

    def ask(self, settings: Fields, tools: Iterable[Any] = ()) -> UUID:
        """Request an answer to the current messages, with these tools besides those of the context. Returns the id of
        the request."""
        self._capture.offer(tools)
        self._capture.sync()
        if settings != self._settings:
            # Also with the first request: the settings of the pipeline may have changed since its start.
            update_id = self._capture.add({"type": "LLMUpdateSettingsFrame", "settings": settings})
            self._settings = None if update_id is None else settings
        return self._publish_expected({"type": "LLMRunFrame", "metadata": {SPOKEN: self._capture.speaks}})

    async def ask_outside(self, question: SideQuestion) -> str | None:
        """Ask in a separate conversation. Returns the text of the answer. Raises what `ask_side_question` raises."""
        return await asyncio.wrap_future(
            self._outbox.call(lambda client: ask_side_question(client, question))
        )

    def probe(self) -> None:
        """Publish a probe, to check whether frames still come back."""
        self._publish_expected({"type": WAITING})

    def _publish_expected(self, fields: Fields) -> UUID:
        id_ = self.publish(fields)
        self._expected_ns = time.time_ns()
        return id_

    @property
    def is_unpublished(self) -> bool:
        """Whether the latest request or probe has not reached the broker."""
        oldest = self._outbox.oldest_ns
        return oldest is not None and oldest <= self._expected_ns

    @property
    def context(self) -> Any:
        """The recorded context."""
        return self._capture.context

    def publish(self, fields: Fields) -> UUID:
        """Publish this frame at once. Returns its id. Raises `AskingError` if the buffer is full."""
        sequence = self._capture.add(fields)
        if sequence is None:
            raise AskingError("The buffer of unpublished frames is full.")
        self._outbox.flush()
        return UUID(self._ids.of(sequence))

    def flush(self) -> None:
        """Publish all captured frames at once."""
        self._outbox.flush()

    def abandon(self, interruptions: int) -> None:
        """Stop the run of an abandoned request by an interruption, unless one was captured already. `interruptions` is
        their number at the time of the request."""
        if self._capture.interruptions == interruptions:
            self._capture.add({"type": "InterruptionFrame"})
        self._outbox.flush()

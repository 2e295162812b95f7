"""Requests one answer and reads it from the log piece by piece, with timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from frameledger.frames import AnyFrame
from frameledger_services.client import StoredFrame
from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.errors import AskingError
from frameledger_services.pipecat.inference_requests import WAITING, InferenceRequests
from frameledger_services.pipecat.run_answer import AnswerPart, RunAnswer

WAITING_SECONDS = 5.0
"""Time without a frame after which a probe is published, to check whether frames still arrive."""


class AnswerListener:
    """Requests the answers of an LLM service, one at a time, and reads them from the log."""

    def __init__(self, requests: InferenceRequests, begin_secs: float, silent_secs: float) -> None:
        self._requests = requests
        self._begin_secs = begin_secs
        self._silent_secs = silent_secs
        self._run: RunAnswer | None = None
        self._asked_at = 0.0
        self._interruptions = 0
        """The number of interruptions before the request."""

        self._frames: asyncio.Queue[tuple[StoredFrame, AnyFrame]] = asyncio.Queue()

    @property
    def has_asked(self) -> bool:
        """Whether an answer was requested and has not ended."""
        return self._run is not None

    def take(self, stored: StoredFrame, frame: AnyFrame) -> None:
        """Queue a stored frame. Drops it if no answer was requested."""
        if self._run is not None:
            self._frames.put_nowait((stored, frame))

    async def ask(self, settings: Fields, tools: Iterable[Any]) -> None:
        """Request an answer to the current context, with these tools besides its own. Raises `AskingError` if the
        conversation cannot be followed."""
        self._asked_at = asyncio.get_running_loop().time()
        self._frames = asyncio.Queue()
        # Frames that arrive before the request has an id belong to no answer: `take` drops them.
        try:
            async with asyncio.timeout(self._begin_secs):
                await self._requests.until_ready()
        except TimeoutError:
            raise AskingError("The database does not respond.") from None
        # Read only now: an interruption that came during the wait does not stop the run.
        self._interruptions = self._requests.interruptions
        self._run = RunAnswer(self._requests.ask(settings, tools))

    async def more(self) -> Iterator[AnswerPart]:
        """Returns the next parts of the answer; the last one is `AnswerEnded`. Raises `AskingError` if there is no
        answer, or it stops before its end."""
        run = self._run
        assert run is not None
        return run.take(*await self._next_frame(run))

    def abandon(self) -> None:
        """Stop the requested run, if there is one, unless a later interruption has stopped it."""
        if self._run is not None:
            self._requests.abandon(self._interruptions)

    def end(self) -> None:
        """Stop waiting for the answer."""
        self._run = None

    async def _next_frame(self, run: RunAnswer) -> tuple[StoredFrame, AnyFrame]:
        """Returns the next frame. While an answer is silent, it publishes probes to check that the log and the tables
        work."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._silent_secs if run.has_begun else self._asked_at + self._begin_secs
        tried_at: float | None = None
        while (now := loop.time()) < deadline:
            if tried_at is None:
                wait = min(deadline - now, WAITING_SECONDS)
            elif (wait := min(deadline, tried_at + self._begin_secs) - now) <= 0:
                break
            try:
                async with asyncio.timeout(wait):
                    stored, frame = await self._frames.get()
            except TimeoutError:
                if run.has_begun and tried_at is None:
                    tried_at = loop.time()
                    self._requests.probe()
                continue
            if stored.type != WAITING:
                return stored, frame
            tried_at = None
        raise AskingError(self._why_nothing(run, tried_at is not None))

    def _why_nothing(self, run: RunAnswer, probe_unanswered: bool) -> str:
        if (why := self._requests.publish_error) is not None:
            return f"Kafka cannot be reached: {why}"
        if self._requests.is_unpublished:
            return f"Kafka cannot be reached: no acknowledgement within {self._begin_secs:g} s."
        if run.asked_version is None or probe_unanswered:
            return (
                "Published frames are not stored: no projector is running, the database is down, or the conversation "
                "was erased."
            )
        if not run.has_begun:
            return f"No inference worker started to answer within {self._begin_secs:g} s."
        return f"The run produced no output for {self._silent_secs:g} s."

"""What `FrameledgerLLMService` has of its observer: it says things by it, and hears what became of them on the log.

What is said goes the observer's way, behind the messages that were captured before it: so whoever reads a question has
the history with which it was asked. What is heard comes from the tables, with its outcome; the observer's thread reads
it, and hands it to the pipeline's loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid5

from frameledger.errors import TransientError
from frameledger.frames import AnyFrame
from frameledger_services.client import StoredFrame
from frameledger_services.pipecat.capture import Capture
from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.errors import AskingError
from frameledger_services.pipecat.outbox import Outbox
from frameledger_services.pipecat.repairs import SPOKEN
from frameledger_services.pipecat.side_conversation import SideQuestion, answered

AGAIN_SECONDS = 1.0

WAITING = "pipecat/WaitingFrame"
"""Says nothing but that somebody waits. Whoever hears it come back knows that log, projector and tables are there."""

_HEARD = {
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


class Asking:
    """One service's side of an observer."""

    def __init__(self, context_id: str, session: UUID, capture: Capture, outbox: Outbox) -> None:
        self._context_id = context_id
        self._session = session
        self._capture = capture
        self._outbox = outbox
        self._settings: Fields | None = None
        self._hoped_ns = 0
        self._began = asyncio.Event()
        self._following: concurrent.futures.Future[None] | None = None

    @property
    def interruptions(self) -> int:
        """How often this pipeline was interrupted."""
        return self._capture.interruptions

    @property
    def why_unpublished(self) -> BaseException | None:
        """Why the newest attempt to publish did not succeed."""
        return self._outbox.why

    def begin(self, take: Callable[[StoredFrame, AnyFrame], None], after: int | None) -> None:
        """Follow the conversation from this version on, or from the newest one; `take` is called in this event loop."""
        loop = asyncio.get_running_loop()

        def hand(call: Callable[..., None], *words: Any) -> None:
            with suppress(RuntimeError):  # the pipeline's loop has ended before its observer
                loop.call_soon_threadsafe(call, *words)

        async def follow(client: Any) -> None:
            version = after
            while True:
                with suppress(TransientError):
                    if version is None:
                        version = await client.newest_version(self._context_id)
                    hand(self._began.set)
                    async for one in client.follow(self._context_id, version):
                        version = one.version
                        if one.type in _HEARD:
                            hand(take, one, one.frame)
                await asyncio.sleep(AGAIN_SECONDS)

        self._following = self._outbox.call(follow)

    def end(self) -> None:
        """Follow no longer."""
        if self._following is not None:
            self._following.cancel()

    async def began(self) -> None:
        """Return once what is said now will be heard. Raises what following ended with."""
        assert self._following is not None
        if self._following.done() and (error := self._following.exception()) is not None:
            raise AskingError(f"The conversation cannot be followed: {error}") from error
        await self._began.wait()

    def ask(self, settings: Fields) -> UUID:
        """Ask for an answer to the messages as they are. Returns the question's id."""
        self._capture.sync()
        if settings != self._settings:
            # The first question, too: what the pipeline was set up with may have changed before it.
            said = self._capture.add({"type": "LLMUpdateSettingsFrame", "settings": settings})
            self._settings = None if said is None else settings
        return self._hope_for({"type": "LLMRunFrame", "metadata": {SPOKEN: self._capture.speaks}})

    async def beside(self, aside: SideQuestion) -> str | None:
        """Ask outside of the conversation. Returns the text of the answer, and raises what `answered` raises."""
        return await asyncio.wrap_future(self._outbox.call(lambda client: answered(client, aside)))

    def try_out(self) -> None:
        """Say what everybody may hear, to see whether anything is heard."""
        self._hope_for({"type": WAITING})

    def _hope_for(self, fields: Fields) -> UUID:
        id_ = self.say(fields)
        self._hoped_ns = time.time_ns()
        return id_

    @property
    def is_held_back(self) -> bool:
        """Whether the broker does not have what was asked or tried last."""
        oldest = self._outbox.oldest_ns
        return oldest is not None and oldest <= self._hoped_ns

    @property
    def context(self) -> Any:
        """The context that is recorded."""
        return self._capture.context

    def say(self, fields: Fields) -> UUID:
        """Publish this frame at once. Returns its id. Raises `AskingError` if there is no room for it."""
        sequence = self._capture.add(fields)
        if sequence is None:
            raise AskingError("Too much waits to be published.")
        self._outbox.hurry()
        return uuid5(self._session, f"{sequence}.0")

    def hurry(self) -> None:
        """Publish at once what was captured."""
        self._outbox.hurry()

    def give_up(self, interruptions: int) -> None:
        """Nobody waits for the answer any more that was asked for when there were so many interruptions: whoever gives
        it is told to stop, unless an interruption has said so."""
        if self._capture.interruptions == interruptions:
            self._capture.add({"type": "InterruptionFrame"})
        self._outbox.hurry()

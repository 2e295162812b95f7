"""A session of `frameledger chat`: typed lines become turns, frames are printed, Ctrl-C interrupts."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from dataclasses import dataclass, field

from frameledger.frames import (
    AnyFrame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TextFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.frames.base import SecondInput
from frameledger_services.cli.chat.render import CUT_SHORT, REJECTED, Screen
from frameledger_services.cli.chat.work import Work
from frameledger_services.client import Conversations, PublishedFrame, StoredFrame

UNANSWERED_SECONDS = 6.0
"""Seconds without the start of an answer after which a warning is shown."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of input; None at its end."""

    text: str | None


@dataclass(frozen=True, slots=True)
class CtrlC:
    pass


Event = Line | CtrlC | StoredFrame


@dataclass
class ChatSession:
    """A session. It ends at the end of input, or on Ctrl-C while no answer is expected."""

    work: Work
    client: Conversations
    context_id: str
    page: Screen
    events: asyncio.Queue[Event]
    answering: bool = False
    """Whether an answer is expected or in progress."""

    unanswered: bool = False
    """Whether no answer has started yet and no warning was shown."""

    stale: bool = True
    """Whether a frame arrived since the last check whether the answer is complete."""

    version: int = 0
    """The version of the newest frame received."""

    ended: bool = False
    pressed: bool = False
    """Whether Ctrl-C is queued."""

    interrupting: bool = False
    """Whether Ctrl-C was pressed and the interruption frame has not been received yet. Text before that frame on the
    log is not printed, because the frame reports it as unheard."""

    announced: set[str] = field(default_factory=set)
    """Calls that are only announced so far. A call that a client answers has no further frame."""

    lines: deque[str] = field(default_factory=deque)
    """Lines typed during an answer."""

    second_input: SecondInput | None = None
    """How a line typed during an answer is handled. None: it is sent after the answer."""

    shown: bool = field(default_factory=lambda: sys.stdin.isatty())
    """Whether the terminal echoes typed lines."""

    async def run(self) -> None:
        self._ask()
        while not (self.ended and not self.answering):
            try:
                async with asyncio.timeout(UNANSWERED_SECONDS if self.unanswered else None):
                    event = await self.events.get()
            except TimeoutError:
                self.unanswered = False
                self.page.say(await self._why_unanswered(), "yellow")
                continue
            match event:
                case Line(text=None):
                    self.ended = True
                case Line(text=str(line)):
                    await self._entered(line)
                case CtrlC():
                    self.pressed = False
                    if not self.answering:
                        return
                    await self._interrupt()
                case StoredFrame():
                    self._received(event)
            if self.stale and self.events.empty():
                await self._check_answer()

    def press_ctrl_c(self) -> None:
        """Queue Ctrl-C. Raises `KeyboardInterrupt` if an earlier one is still queued, as during a publication that no
        broker or no projector answers."""
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        self.events.put_nowait(CtrlC())

    async def _entered(self, line: str) -> None:
        if self.shown:
            self.page.entered()
        if not line.strip():
            if not self.answering:
                self._ask()
        elif not self.answering:
            await self._turn(line)
        elif self.second_input is None:
            self.lines.append(line)
        else:
            await self._second(line, self.second_input)

    async def _turn(self, line: str) -> None:
        if not self.shown:
            self.page.typed(line)
        self.answering = self.unanswered = True
        self.page.heard = ""
        await self._say(line)

    async def _second(self, line: str, mode: SecondInput) -> None:
        """Publish a turn during an answer. The fold decides its effect, because the answer may be complete by then."""
        if not self.shown:
            self.page.typed(line)
        started = await self._say(line)
        if started.reason == "busy":
            self.page.say(REJECTED, "yellow")
        elif mode == "interrupt":
            self.page.say(CUT_SHORT, "yellow")

    async def _say(self, line: str) -> PublishedFrame:
        """Publish a turn. Returns the outcome of its start frame."""
        mode = self.second_input
        started, *_ = await self.client.publish(
            self.context_id,
            UserStartedSpeakingFrame(second_input=mode),
            # A turn whose start is rejected has no text.
            TranscriptionFrame(text=line, second_input=mode),
            UserStoppedSpeakingFrame(),
            wait=True,
        )
        return started

    async def _interrupt(self) -> None:
        self.unanswered = False
        self.interrupting = True
        heard = self.page.heard.strip() or None
        await self.client.publish(self.context_id, InterruptionFrame(heard_text=heard), wait=True)

    def _received(self, stored: StoredFrame) -> None:
        frame, self.version = stored.frame, stored.version
        if isinstance(frame, InterruptionFrame):
            self.interrupting = False
        if self.interrupting and isinstance(frame, TextFrame):
            return
        if stored.outcome != "applied":
            return
        if isinstance(frame, LLMFullResponseStartFrame):
            # Also an answer without a typed line, after a function that ran in the background reported.
            self.answering, self.unanswered = True, False
        if isinstance(frame, UserStartedSpeakingFrame) and self.second_input is None:
            self.page.heard = ""
        self._note_calls(frame)
        self.page.show(frame)
        self.stale = self.stale or not isinstance(frame, LLMTextFrame)

    def _note_calls(self, frame: AnyFrame) -> None:
        match frame:
            case FunctionCallsStartedFrame():
                self.announced |= {call.tool_call_id for call in frame.function_calls}
            case FunctionCallInProgressFrame() | FunctionCallResultFrame() | FunctionCallCancelFrame():
                self.announced.discard(frame.tool_call_id)
            case _:
                pass

    async def _print_client_calls(self) -> None:
        """Print the calls that wait for their client. Only the tables tell which functions belong to a client."""
        for call, name in (await self.work.waiting_for_client(self.context_id)).items():
            if call in self.announced:
                self.announced.discard(call)
                self.page.waits(call, name, "the client")

    async def _check_answer(self) -> None:
        """Check whether the answer is complete, and then process the lines typed meanwhile."""
        if self.announced:
            await self._print_client_calls()
        goes_on, version = await self.work.goes_on(self.context_id)
        # The tables may be ahead of the received frames, which are printed first.
        self.stale = version > self.version
        was, self.answering = self.answering, goes_on or (self.answering and self.stale)
        if self.answering:
            return
        if was:
            self.unanswered = False
            if self.lines:
                await self._turn(self.lines.popleft())
                return
        # Also after a line about background work, which replaced the prompt.
        if not (self.ended or self.page.prompted):
            self._ask()

    def _ask(self) -> None:
        if self.shown:
            self.page.prompt()

    async def _why_unanswered(self) -> str:
        alive = await self.work.live_inference_workers()
        model = (await self.client.context(self.context_id)).context.to_wire()["settings"].get("model")
        still = "Waiting; Ctrl-C cancels."
        if not alive:
            return (
                "No inference service is running. Start one in another terminal: frameledger run inference "
                f"--provider scripted (or openai, anthropic). {still}"
            )
        of = f", or none serves the model {model}" if model else ""
        return (
            f"No answer started within {UNANSWERED_SECONDS:.0f} s: all {alive} running inference workers "
            f"are busy{of}. See: frameledger sql -c 'SELECT * FROM services'. {still}"
        )

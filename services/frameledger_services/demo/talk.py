"""The state of the demo's conversation for its participants, folded from the stored frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

from frameledger.errors import TransientError
from frameledger.evolve.state import Call
from frameledger.fold import Conversation, Folding
from frameledger.frames import FunctionCallResultFrame, LLMFullResponseStartFrame, LLMTextFrame
from frameledger.ids import ContextId
from frameledger_services.client import StoredFrame
from frameledger_services.demo.recording import When

PATIENCE = 90.0
"""Timeout in seconds of every event in the conversation."""


class NotSeenError(TransientError):
    """An event of the demo did not happen in time.

    Remedy: Run the demo again. `frameledger doctor` checks the servers.
    """


class Talk:
    """The current speech, runs and calls. One writer calls `take`; readers wait with `until`."""

    def __init__(self, context_id: ContextId) -> None:
        self.context_id = context_id
        self.utterances = 0
        """Number of answers that have text."""

        self.spoken = 0
        """Number of those that the voice has finished."""

        self.answer: UUID | None = None
        """The first frame of the last answer."""

        self._folding = Folding(Conversation.new(context_id))
        self._text = ""
        self._reported: set[str] = set()
        self._unknown: list[tuple[FunctionCallResultFrame, UUID]] = []
        self._frame_ids: list[UUID] = []
        self._unseen: set[UUID] = set()
        self._changed = asyncio.Condition()

    def published(self, frame_id: UUID) -> None:
        """Note that a participant publishes this frame; `quiet` is false until it is stored."""
        self._unseen.add(frame_id)

    async def take(self, stored: StoredFrame) -> None:
        """Apply the next stored frame of the conversation."""
        frame = stored.frame
        self._unseen.discard(stored.frame_id)
        self._frame_ids.append(stored.frame_id)
        self._folding.step(frame)
        if stored.outcome == "applied":
            match frame:
                case LLMFullResponseStartFrame():
                    self._text = ""
                    self.answer = stored.frame_id
                case LLMTextFrame():
                    self.utterances += not self._text
                    self._text += frame.text
                case FunctionCallResultFrame() if frame.properties and not frame.properties.is_final:
                    self._reported.add(frame.function_name)
                case FunctionCallResultFrame(settled_as="ambiguous"):
                    self._unknown.append((frame, stored.frame_id))
        await self.changed()

    async def changed(self) -> None:
        """Wake the waiting tasks."""
        async with self._changed:
            self._changed.notify_all()

    async def until(
        self, what: str, happened: Callable[[], bool], *, within: float | None = PATIENCE
    ) -> None:
        """Wait until the event happened. Raises `NotSeenError` after `within` seconds."""
        if not await self.happens(happened, within):
            raise NotSeenError(
                f"In {self.context_id} this did not happen within {within:.0f} s: {what}. At version {self.version} "
                f"{self.doing}. See `frameledger tail {self.context_id}`."
            )

    async def happens(self, happened: Callable[[], bool], within: float | None) -> bool:
        """Wait for the event, at most `within` seconds. Returns whether it happened."""
        try:
            async with asyncio.timeout(within), self._changed:
                await self._changed.wait_for(happened)
        except TimeoutError:
            return False
        return True

    @property
    def version(self) -> int:
        return self._folding.state.version

    @property
    def up_to_date(self) -> bool:
        """Whether everything that the participants published is stored."""
        return not self._unseen

    @property
    def ended(self) -> bool:
        """Whether the conversation ended and everything that the participants published is stored."""
        return self._folding.state.terms.ended and self.up_to_date

    @property
    def answering(self) -> bool:
        """Whether an answer is in progress."""
        return self._folding.state.speech.response is not None

    @property
    def bot_speaks(self) -> bool:
        return self._folding.state.speech.bot_since is not None

    @property
    def cut_in(self) -> bool:
        """Whether the user speaks or waits for an answer."""
        turn = self._folding.state.turn
        return turn is not None and turn.holds_floor

    @property
    def silent(self) -> bool:
        """Whether there is no speech and none is due before a call ends or reports."""
        runs = self._folding.state.runs
        awaits_run = runs.open is not None or runs.wanted is not None or runs.owed_to_turn or runs.owed_to_bot
        speaking = self.bot_speaks or self.spoken < self.utterances or self.cut_in
        return not (self._unseen or awaits_run or speaking)

    @property
    def quiet(self) -> bool:
        """Whether it is silent and no call is awaited; calls may run in the background."""
        return (
            self.silent and not any(self._is_awaited(call) for call in self._calls()) and not self.unknown()
        )

    @property
    def resting(self) -> bool:
        """Whether nothing is active, including background calls."""
        return self.quiet and not self._calls()

    @property
    def words(self) -> int:
        """Number of words of the current answer; 0 if there is none."""
        return self.word_count if self.answering or self.spoken < self.utterances else 0

    @property
    def word_count(self) -> int:
        """Number of words of the last answer."""
        return len(self._text.split())

    @property
    def run(self) -> str | None:
        run = self._folding.state.runs.open
        return run.run_id if run is not None and self.answering else None

    @property
    def attempt(self) -> int | None:
        run = self._folding.state.runs.open
        return run.attempt if run is not None else None

    def call(self, function_name: str) -> str | None:
        """Returns the id of the open call of a function."""
        return next((one.tool_call_id for one in self._calls() if one.function_name == function_name), None)

    def heard(self, words: int) -> str | None:
        """Returns the first words of the current answer, or None if there is none."""
        return " ".join(self._text.split()[:words]) or None if self.words else None

    def waiting(self) -> list[Call]:
        """Returns the calls that wait for a person."""
        return [one for one in self._calls() if one.running is not None and one.running.waiting]

    def start_of(self, call: Call) -> UUID | None:
        """Returns the frame that started a call, or None if it has not started."""
        return None if call.running is None else self._frame_ids[call.running.since - 1]

    def unknown(self) -> list[tuple[FunctionCallResultFrame, UUID]]:
        """Returns the results of ambiguous calls that are not resolved, with the ids of their frames."""
        ambiguous = {one.tool_call_id for one in self._folding.state.calls.ambiguous}
        return [one for one in self._unknown if one[0].tool_call_id in ambiguous]

    def alone(self, function_name: str) -> str | None:
        """Returns the id of a running call of this function while no other call is awaited, or None."""
        awaited = [call for call in self._calls() if self._is_awaited(call)]
        if len(awaited) != 1 or awaited[0].running is None or awaited[0].function_name != function_name:
            return None
        return awaited[0].tool_call_id

    def ready(self, when: When) -> bool:
        """Returns whether the condition of a recorded line is met or can no longer be met."""
        return self.met(when) or (self.quiet if when.reported is None else self.resting)

    def met(self, when: When) -> bool:
        """Returns whether the condition of a recorded line is met."""
        if when.quiet:
            return self.quiet
        if when.words is not None:
            return self.words >= when.words
        return when.reported is None or when.reported in self._reported

    @property
    def doing(self) -> str:
        """The current activity, as text."""
        state = self._folding.state
        calls = ", ".join(f"{one.function_name} is {one.stage}" for one in self._calls())
        run = "a run is open" if state.runs.open is not None else "no run is open"
        run += ", the bot is speaking" if self.bot_speaks else ""
        return f"{run}, {calls}" if calls else f"{run}, no call is open"

    @staticmethod
    def _is_awaited(call: Call) -> bool:
        return call.running is None or call.running.synchronous

    def _calls(self) -> list[Call]:
        return list(self._folding.state.calls.open.values())

"""The state of the demo's conversation as its participants know it, folded from the frames that SQL shows."""

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
"""Seconds that anything in the conversation may take."""


class NotSeenError(TransientError):
    """What the demo waited for did not happen in time.

    Remedy: Run it again; `frameledger doctor` says what is wrong with the servers.
    """


class Talk:
    """What is being spoken, by whom, and what goes on. One writer calls `take`; readers wait with `until`."""

    def __init__(self, context_id: ContextId) -> None:
        self.context_id = context_id
        self.utterances = 0
        """How many answers have begun to say something."""

        self.spoken = 0
        """How many of them the voice is through with."""

        self.answer: UUID | None = None
        """The frame that began the last answer."""

        self._folding = Folding(Conversation.new(context_id))
        self._text = ""
        self._reported: set[str] = set()
        self._unknown: list[tuple[FunctionCallResultFrame, UUID]] = []
        self._frame_ids: list[UUID] = []
        self._unseen: set[UUID] = set()
        self._changed = asyncio.Condition()

    def published(self, frame_id: UUID) -> None:
        """A participant publishes this frame: nothing is `quiet` before SQL shows it."""
        self._unseen.add(frame_id)

    async def take(self, stored: StoredFrame) -> None:
        """A frame is in SQL, the next one of the conversation."""
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
        """Wait until it has happened. Raises `NotSeenError`, which says what, if it takes longer."""
        if not await self.happens(happened, within):
            raise NotSeenError(
                f"In {self.context_id} it was waited for {within:.0f} s until {what}. At version {self.version} "
                f"{self.doing}. `frameledger tail {self.context_id}` shows how it came to that."
            )

    async def happens(self, happened: Callable[[], bool], within: float | None) -> bool:
        """Wait until it has happened, or for so many seconds. Returns whether it has."""
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
        """Whether everything that we published is seen."""
        return not self._unseen

    @property
    def ended(self) -> bool:
        """Whether it was ended, and everything that we published is seen."""
        return self._folding.state.terms.ended and self.up_to_date

    @property
    def answering(self) -> bool:
        """Whether an answer is being given, and has not ended."""
        return self._folding.state.speech.response is not None

    @property
    def bot_speaks(self) -> bool:
        return self._folding.state.speech.bot_since is not None

    @property
    def cut_in(self) -> bool:
        """Whether the user speaks, or waits for an answer."""
        turn = self._folding.state.turn
        return turn is not None and turn.holds_floor

    @property
    def silent(self) -> bool:
        """No speech goes on or is about to, unless a call ends or reports."""
        runs = self._folding.state.runs
        asked = runs.open is not None or runs.wanted is not None or runs.owed_to_turn or runs.owed_to_bot
        speaking = self.bot_speaks or self.spoken < self.utterances or self.cut_in
        return not (self._unseen or asked or speaking)

    @property
    def quiet(self) -> bool:
        """The same, and no call is awaited: at most calls in the background go on."""
        return (
            self.silent and not any(self._is_awaited(call) for call in self._calls()) and not self.unknown()
        )

    @property
    def resting(self) -> bool:
        """Nothing goes on, not in the background either."""
        return self.quiet and not self._calls()

    @property
    def words(self) -> int:
        """How many words the answer has that is being given or spoken; 0 if none is."""
        return self.said if self.answering or self.spoken < self.utterances else 0

    @property
    def said(self) -> int:
        """How many words the last answer has, whether it is over or not."""
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
        """The id of the open call of a function."""
        return next((one.tool_call_id for one in self._calls() if one.function_name == function_name), None)

    def heard(self, words: int) -> str | None:
        """Returns the first words of the answer that is being given or spoken; None if none is."""
        return " ".join(self._text.split()[:words]) or None if self.words else None

    def waiting(self) -> list[Call]:
        """The calls that wait for a person."""
        return [one for one in self._calls() if one.running is not None and one.running.waiting]

    def start_of(self, call: Call) -> UUID | None:
        """Returns the frame that started a call; None for one that has not started."""
        return None if call.running is None else self._frame_ids[call.running.since - 1]

    def unknown(self) -> list[tuple[FunctionCallResultFrame, UUID]]:
        """Returns the results of calls that are ambiguous and not resolved, each with the frame's id."""
        ambiguous = {one.tool_call_id for one in self._folding.state.calls.ambiguous}
        return [one for one in self._unknown if one[0].tool_call_id in ambiguous]

    def alone(self, function_name: str) -> str | None:
        """The id of a call of this function that runs while no other call is awaited; None if there is none."""
        awaited = [call for call in self._calls() if self._is_awaited(call)]
        if len(awaited) != 1 or awaited[0].running is None or awaited[0].function_name != function_name:
            return None
        return awaited[0].tool_call_id

    def ready(self, when: When) -> bool:
        """Whether a line of the recording has its turn: what it waits for has happened, or will not."""
        return self.met(when) or (self.quiet if when.reported is None else self.resting)

    def met(self, when: When) -> bool:
        """Whether what a line waits for has happened."""
        if when.quiet:
            return self.quiet
        if when.words is not None:
            return self.words >= when.words
        return when.reported is None or when.reported in self._reported

    @property
    def doing(self) -> str:
        """What goes on, in words."""
        state = self._folding.state
        calls = ", ".join(f"{one.function_name} is {one.stage}" for one in self._calls())
        run = "a run is open" if state.runs.open is not None else "no run is open"
        run += ", the bot speaks" if self.bot_speaks else ""
        return f"{run}, {calls}" if calls else f"{run}, no call is"

    @staticmethod
    def _is_awaited(call: Call) -> bool:
        return call.running is None or call.running.synchronous

    def _calls(self) -> list[Call]:
        return list(self._folding.state.calls.open.values())

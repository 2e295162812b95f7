"""Simulated people: one talks, interrupts, changes the history, and answers calls that wait for a person."""

from __future__ import annotations

from collections.abc import Callable

from tests.laws.simulation.actors import Steps
from tests.laws.simulation.world import World

from frameledger.frames import (
    BotStartedSpeakingFrame,
    BotStoppedSpeakingFrame,
    EndFrame,
    Frame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    LLMContextEraseFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)

Ways = tuple[tuple[float, Callable[[], Steps]], ...]


class Person:
    """A person whose client may be killed too, and sometimes omits a stop frame."""

    def __init__(self, world: World, name: str) -> None:
        self.name, self.frozen_until = name, 0.0
        self._world = world
        self._looked_at = 0
        self._work = self._talk(self._ways())

    def step(self) -> None:
        next(self._work)

    def _ways(self) -> Ways:
        return (
            (6, self._turn),
            (1, self._interrupts),
            (1, self._writes),
            (2, self._bot_speaks),
            (3, self._answers),
            (1, self._cancels),
            (0.3, self._starts_over),
            (0.15, self._ends),
        )

    def _talk(self, ways: Ways) -> Steps:
        rng = self._world.rng
        while True:
            way = rng.choices([way for _, way in ways], [weight for weight, _ in ways])[0]
            yield from way()
            for _ in range(rng.choice((0, 5, 60))):
                yield

    def _say(self, *frames: Frame) -> None:
        self._world.send(self.name, *frames)

    def _known(self) -> int | None:
        """Returns the version in the tables, the one from this person's previous look, or none.

        The choice follows from the version, without `rng`: in each case more may happen before the frame is folded.
        """
        newest, before = int(self._world.conversation.state.version), self._looked_at
        self._looked_at = newest
        return (None, newest, before)[newest % 3]

    def _turn(self) -> Steps:
        rng = self._world.rng
        self._say(UserStartedSpeakingFrame())
        if rng.random() < 0.25:
            self._say(InterruptionFrame())
        for _ in range(rng.randint(0, 2)):
            yield
            if rng.random() < 0.5:
                self._say(InterimTranscriptionFrame(text="so"))
            if rng.random() < 0.8:
                self._say(TranscriptionFrame(text=self._world.word()))
        yield
        if rng.random() < 0.9:
            self._say(UserStoppedSpeakingFrame())

    def _interrupts(self) -> Steps:
        self._say(InterruptionFrame())
        yield

    def _writes(self) -> Steps:
        words = [{"role": "developer", "content": "note"}]
        known = self._known()
        self._say(LLMMessagesAppendFrame(messages=words, run_llm=True, expected_version=known), LLMRunFrame())
        yield

    def _bot_speaks(self) -> Steps:
        self._say(BotStartedSpeakingFrame())
        for _ in range(self._world.rng.randint(0, 10)):
            yield
        if self._world.rng.random() < 0.8:
            self._say(BotStoppedSpeakingFrame())

    def _answers(self) -> Steps:
        for call in self._world.calls.values():
            if call.status == "waiting":
                self._say(
                    FunctionCallResultFrame(
                        function_name=call.function_name, tool_call_id=call.tool_call_id, result="approved"
                    )
                )
        yield

    def _cancels(self) -> Steps:
        still_open = [call for call in self._world.calls.values() if not call.is_over]
        if still_open:
            call = self._world.rng.choice(still_open)
            self._say(
                FunctionCallCancelFrame(
                    function_name=call.function_name,
                    tool_call_id=call.tool_call_id,
                    opened_version=call.key.requested_version,
                )
            )
        yield

    def _starts_over(self) -> Steps:
        run_llm = self._world.rng.random() < 0.5
        self._say(LLMMessagesUpdateFrame(messages=[], run_llm=run_llm, expected_version=self._known()))
        yield

    def _ends(self) -> Steps:
        self._say(EndFrame())
        yield


class ForgetfulPerson(Person):
    """A person who also erases the conversation, and whose client publishes old records again: its own and those of
    workers."""

    def _ways(self) -> Ways:
        return (*super()._ways(), (2, self._erases), (1, self._says_again))

    def _erases(self) -> Steps:
        rng = self._world.rng
        erasure = LLMContextEraseFrame(id=f"erase-{self._world.word()}", why="asked")
        self._say(erasure)
        for _ in range(rng.randint(0, 20)):
            yield
        if rng.random() < 0.4:
            self._say(erasure)

    def _says_again(self) -> Steps:
        log = self._world.log
        erased_at: dict[str | None, int] = {}
        for place, frame in enumerate(log):
            if isinstance(frame, LLMContextEraseFrame):
                # Repeated, it ends no life.
                erased_at.setdefault(frame.id, place)
        # Without ids they would be different frames in their original life.
        of_before = log[: max(erased_at.values(), default=0)]
        known = [frame for frame in log if frame.id is not None] + of_before
        if known:
            self._say(self._world.rng.choice(known))
        yield

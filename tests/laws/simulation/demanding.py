"""A person who sets limits and repeats everything, and a model that calls functions without end."""

from __future__ import annotations

from typing import get_args

from tests.laws.author import WORD
from tests.laws.simulation.actors import Steps
from tests.laws.simulation.inference import InferenceWorker
from tests.laws.simulation.people import Person, Ways
from tests.laws.simulation.world import World

from frameledger.frames import Frame, LLMMessagesAppendFrame, LLMSetLimitsFrame, LLMUpdateSettingsFrame
from frameledger.frames.base import SecondInput

MODES: tuple[SecondInput, ...] = get_args(SecondInput)


class TirelessWorker(InferenceWorker):
    """A person whose model calls functions until a limit stops it."""

    most_calls = 60


class DemandingPerson(Person):
    """A person who configures second inputs, by setting and by frame, and asks again before there is an answer."""

    def _ways(self) -> Ways:
        return (
            *super()._ways(),
            (1.5, self._limits),
            (1, self._says_what_a_second_input_does),
            (4, self._asks_again),
            (2, self._takes_notes),
        )

    def _talk(self, ways: Ways) -> Steps:
        yield from self._limits()
        yield from super()._talk(ways)

    def _say(self, *frames: Frame) -> None:
        super()._say(*map(self._marked, frames))

    def _marked(self, frame: Frame) -> Frame:
        if "second_input" not in type(frame).model_fields or self._world.rng.random() < 0.5:
            return frame
        return frame.model_copy(update={"second_input": self._world.rng.choice(MODES)})

    def _limits(self) -> Steps:
        rng = self._world.rng
        ranges = {
            "context_messages": (4, 30),
            "context_bytes": (4_000, 40_000),
            "frames_per_second": (1, 4),
            "calls_per_run": (1, 2),
            "rounds": (1, 2),
        }
        limits = {name: rng.randint(*most) for name, most in ranges.items() if rng.random() < 0.5}
        self._say(LLMSetLimitsFrame(**limits))
        yield

    def _says_what_a_second_input_does(self) -> Steps:
        mode = self._world.rng.choice((*MODES, None))
        self._say(LLMUpdateSettingsFrame(settings={"second_input": mode}))
        yield

    def _asks_again(self) -> Steps:
        for _ in range(self._world.rng.randint(1, 4)):
            word = self._world.word()
            message = {"role": "user", "content": word}
            self._say(LLMMessagesAppendFrame(id=f"asks-{word}", messages=[message], run_llm=True))
            yield

    def _takes_notes(self) -> Steps:
        """The model continues by itself: what it is told requests no run."""
        for _ in range(self._world.rng.randint(1, 2)):
            self._say(LLMMessagesAppendFrame(messages=[{"role": "developer", "content": "note"}]))
            for _ in range(40):
                yield


def check_nothing_said_is_lost(world: World) -> None:
    """All accepted words of a person, held ones too, are in the context, or were when the history was replaced."""
    written = {word for words in world.words_written.values() for word in WORD.findall(words)}
    for row in world.lives_kept.frames:
        if not isinstance(row.frame, LLMMessagesAppendFrame) or row.frame.id is None:
            continue
        if world.outcomes[row.frame.id][0] != "applied":
            continue
        said = {word for message in row.frame.messages for word in WORD.findall(str(message["content"]))}
        if said - written:
            raise world.broken(f"what was taken is written, and not {said - written}")

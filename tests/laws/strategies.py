"""Generated conversations: mostly plausible, partly absurd, always decoded from bytes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from tests.laws.arbitrary import as_from_a_record
from tests.laws.author import WORD, Author

from frameledger.evolve import State, Step, evolve
from frameledger.evolve.changes import Message
from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    AnyFrame,
    BotStoppedSpeakingFrame,
    ErrorFrame,
    Frame,
    FunctionCallCancelFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.ids import Position

CONTEXT = "talk"


@dataclass(frozen=True, slots=True)
class Moment:
    """A frame that was not a duplicate, and its effect. `rows` are the messages after it."""

    before: State
    frame: AnyFrame
    step: Step
    rows: tuple[tuple[Position, Message], ...]

    @property
    def after(self) -> State:
        return self.step.state

    @property
    def messages(self) -> list[Message]:
        return [message for _, message in self.rows]


def moments(frames: Iterable[AnyFrame], context_id: str = CONTEXT) -> Iterator[Moment]:
    """Returns the moments of a new conversation, in order, without duplicates."""
    folding = Folding(Conversation.new(context_id))
    for frame in frames:
        before = folding.state
        step = folding.step(frame)
        if step is not None:
            yield Moment(before, frame, step, folding.messages.rows())


def conversation_of(
    moves: Iterable[int], context_id: str = CONTEXT, *, erases: bool = False
) -> tuple[AnyFrame, ...]:
    author = Author(context_id, erases=erases)
    for move in moves:
        author.write(move)
    return tuple(author.frames)


def random_conversation(seed: int, length: int = 80, *, erases: bool = False) -> tuple[AnyFrame, ...]:
    """Returns the same frames for the same seed."""
    rng = Random(seed)
    return conversation_of((rng.randrange(1, 2**24) for _ in range(length)), erases=erases)


MOVES = st.lists(st.integers(0, 2**24 - 1), min_size=50, max_size=50)


def conversations(
    context_id: str = CONTEXT, *, erases: bool = False
) -> st.SearchStrategy[tuple[AnyFrame, ...]]:
    """Conversations of up to fifty frames in the context of this id."""
    return MOVES.map(lambda moves: conversation_of(moves, context_id, erases=erases))


def closing_frames(state: State) -> list[AnyFrame]:
    """Returns the frames that a timekeeper would publish if all open work were overdue."""
    frames: list[Frame] = []
    run, speech = state.runs.open, state.speech
    if run is not None:
        frames.append(ErrorFrame(fatal=True, run_id=run.run_id))
    frames += [
        FunctionCallCancelFrame(
            function_name=call.function_name,
            tool_call_id=call.tool_call_id,
            run_llm=True,
            opened_version=call.requested_version,
        )
        for call in state.calls.open.values()
    ]
    if state.turn is not None:
        frames += [UserStoppedSpeakingFrame(opened_version=state.turn.opened_version)] * 2
    if speech.bot_since is not None:
        frames.append(BotStoppedSpeakingFrame(opened_version=speech.bot_since))
    return [as_from_a_record(frame) for frame in frames]


def coming_to_rest(state: State) -> Iterator[tuple[AnyFrame, Step]]:
    """Close all open work, then the work that this opened, and so on. Returns each frame and its step; nothing is open
    after the last. Fails if work is still open after a few rounds.
    """
    for _ in range(5):
        frames = closing_frames(state)
        if not frames:
            return
        for frame in frames:
            step = evolve(state, frame)
            yield frame, step
            state = step.state
    raise AssertionError(f"something is always open: {state}")


def words_in(text: str) -> set[str]:
    """Returns the unique words of generated text that occur here."""
    return set(WORD.findall(text))

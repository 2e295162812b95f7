"""`fold`: computes a whole conversation from its frames, in memory, without any server.

The projector does the same with a database between the steps. Both call `evolve` for every frame that is not a
repetition, and apply the changes that it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from frameledger.context import LLMContext
from frameledger.evolve import State, Step, evolve
from frameledger.evolve.changes import Message
from frameledger.evolve.erasure import is_of_an_earlier_life
from frameledger.evolve.state import MessageCursor, RequestParameters
from frameledger.frames import AnyFrame, LLMContextEraseFrame
from frameledger.ids import ContextId, Position
from frameledger.messages import Messages


@dataclass(frozen=True, slots=True)
class Conversation:
    """A context after some frames: its state, the messages of its era by position, the ids folded so far."""

    state: State
    rows: tuple[tuple[Position, Message], ...] = ()
    frame_ids: frozenset[str] = field(default=frozenset(), repr=False)
    erasure_ids: frozenset[str] = field(default=frozenset(), repr=False)
    """The ids of the frames that erased it: the only ids of an earlier life that are still known."""

    @classmethod
    def new(cls, context_id: str) -> Conversation:
        """Returns a conversation before its first frame."""
        return cls(State(ContextId(context_id)))

    @classmethod
    def starting(
        cls, context_id: ContextId, terms: RequestParameters, messages: Iterable[Message]
    ) -> Conversation:
        """Returns a conversation that starts with these parameters and messages, as if they had always been there."""
        rows = tuple((Position(place), message) for place, message in enumerate(messages, start=1))
        return cls(
            State(context_id, place=MessageCursor(next_position=Position(len(rows) + 1)), terms=terms), rows
        )

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(message for _, message in self.rows)

    @property
    def context(self) -> LLMContext:
        """The context as a provider would receive it."""
        terms = self.state.terms
        return LLMContext.from_wire(
            {
                "messages": list(self.messages),
                "tools": list(terms.tools),
                "tool_choice": terms.tool_choice,
                "settings": dict(terms.settings),
            }
        )


class Folding:
    """A conversation while frames are folded into it: one writer, frames one by one.

    `step` folds a frame and returns its step; `conversation` returns the conversation so far.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.state = conversation.state
        self.messages = Messages(conversation.rows)
        self._frame_ids = set(conversation.frame_ids)
        self._erasure_ids = set(conversation.erasure_ids)

    def step(self, frame: AnyFrame, logged_at: datetime | None = None) -> Step | None:
        """Fold one frame, which was logged at this time if that is known. Returns its step, or None for a frame that
        changes nothing: a repetition, whose own id was folded before, or a frame of a life that was erased.

        A frame without an id is never a repetition. An erasure drops the ids of the frames before it, except those of
        other erasures.
        """
        # Reading a field of a model takes 0.02 us, ten times as long as reading a local name.
        frame_id = frame.id
        if frame_id is not None and frame_id in self._frame_ids:
            return None
        state = self.state
        if state.erased is not None and is_of_an_earlier_life(state, frame):
            return None
        if type(frame) is LLMContextEraseFrame:
            if frame_id in self._erasure_ids:
                return None
            self._frame_ids.clear()
            if frame_id is not None:
                self._erasure_ids.add(frame_id)
        elif frame_id is not None:
            self._frame_ids.add(frame_id)
        step = evolve(state, frame, logged_at)
        self.state = step.state
        if step.changes:
            self.messages.apply(step.changes)
        return step

    def conversation(self) -> Conversation:
        return Conversation(
            self.state, self.messages.rows(), frozenset(self._frame_ids), frozenset(self._erasure_ids)
        )


def fold(frames: Iterable[AnyFrame], onto: Conversation) -> Conversation:
    """Returns the conversation after these frames: folding in two halves equals folding at once."""
    folding = Folding(onto)
    for frame in frames:
        folding.step(frame)
    return folding.conversation()


def steps(frames: Iterable[AnyFrame], onto: Conversation) -> Iterator[tuple[AnyFrame, Step | None]]:
    """Yields each frame with its step, one by one; None for a repetition."""
    folding = Folding(onto)
    for frame in frames:
        yield frame, folding.step(frame)

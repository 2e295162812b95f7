"""Aggregators of contexts: both sides of a conversation by all rules of the fold, separately or as a pair."""

from __future__ import annotations

from typing import cast

from frameledger.aggregators.sharing import held_by
from frameledger.aggregators.side import Half, Role, known_frame, side_of
from frameledger.context import HasWire, LLMContext
from frameledger.evolve.changes import Message
from frameledger.frames import ContextSnapshot, Frame, KnownFrame, LLMContextFrame, TextFrame


class LLMContextAggregator(Half):
    """One side of a conversation that begins with `context`, which is not changed; without a `role`, both sides.

    Returns the new context as `LLMContextFrame`, with `run_llm` true if a run is requested. The user's side follows the
    rules of words and turns, the assistant's those of responses, thoughts and calls; both accept interruptions and
    frames of clients about the context. Frames of the other side are ignored. With `expect_stripped_words` false all
    words contain their own spaces.

    A user's half and an assistant's half that are created on the same object share one conversation, as if they changed
    that object; a frame that both receive counts once if it has an id. A further half of a role begins another
    conversation. Raises ValueError if two conversations wait for their other half, and for a role other than "user" and
    "assistant".
    """

    def __init__(
        self, context: HasWire, *, role: str | None = None, expect_stripped_words: bool = True
    ) -> None:
        super().__init__(held_by(role, context, context), cast(Role | None, role))
        self._words_bring_spaces = not expect_stripped_words

    @property
    def context(self) -> LLMContext:
        """The current context. It never changes; later frames create another one."""
        return self._held.folding.conversation().context

    def _output(self) -> tuple[Frame, ...]:
        context = ContextSnapshot(**self.context.to_wire())
        return (LLMContextFrame(context=context, run_llm=self._held.asked or None),)

    def _understood(self, frame: object) -> KnownFrame | None:
        known = known_frame(frame)
        if known is None or (self._role is not None and side_of(known) not in (None, self._role)):
            return None
        if self._words_bring_spaces and isinstance(known, TextFrame):
            return known.model_copy(update={"includes_inter_frame_spaces": True})
        return known


class LLMAssistantContextAggregator(LLMContextAggregator):
    """The assistant's side: all rules of responses, thoughts and calls."""

    def __init__(self, context: HasWire, *, expect_stripped_words: bool = True) -> None:
        super().__init__(context, role="assistant", expect_stripped_words=expect_stripped_words)


class LLMUserContextAggregator(LLMContextAggregator):
    """The user's side: all rules of words and turns."""

    def __init__(self, context: HasWire, *, expect_stripped_words: bool = True) -> None:
        super().__init__(context, role="user", expect_stripped_words=expect_stripped_words)


class LLMContextAggregatorPair:
    """Both sides of one conversation, over one state: a turn of the user and a call affect each other.

    Pass each frame to the half that it concerns, or all frames to the pair. A frame that both halves receive counts
    once if it has an id, and twice if it concerns both and has none.
    """

    def __init__(self, context: HasWire, *, expect_stripped_words: bool = True) -> None:
        own = LLMContext.from_wire(context)  # an object on which no other half is created
        self._user = LLMUserContextAggregator(own, expect_stripped_words=expect_stripped_words)
        self._assistant = LLMAssistantContextAggregator(own, expect_stripped_words=expect_stripped_words)

    def user(self) -> LLMUserContextAggregator:
        """The half for the user's words."""
        return self._user

    def assistant(self) -> LLMAssistantContextAggregator:
        """The half for the assistant's words and calls."""
        return self._assistant

    @property
    def context(self) -> LLMContext:
        """The current context. It never changes; later frames create another one."""
        return self._user.context

    @property
    def messages(self) -> tuple[Message, ...]:
        """The current messages of the context, read-only."""
        return self._user.messages

    def process_frame(self, frame: object, direction: object = None) -> tuple[Frame, ...]:
        """Returns the result of the frame, at the half that it concerns. `direction` is ignored."""
        known = known_frame(frame)
        half = self._user if known is not None and side_of(known) == "user" else self._assistant
        return half.process_frame(frame)

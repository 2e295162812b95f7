"""One side of a conversation in memory, and the state that it has alone or shares with the other side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, cast

from frameledger.context import HasWire
from frameledger.evolve.changes import Message, MessageAppended, MessageReplaced, RunRequested
from frameledger.evolve.state import RequestParameters
from frameledger.evolve.text import trimmed
from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    FRAME_TYPES,
    Frame,
    KnownFrame,
    LLMContextFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    OfRun,
)
from frameledger.ids import ContextId

Role = Literal["user", "assistant"]

_OF_MESSAGES = (
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMessageRewriteFrame,
    LLMContextFrame,
)
"""Frames of clients about messages. These are not collected, because nobody says them now."""


class Half(ABC):
    """Collects the words of one role; without a role, of both. Raises ValueError for a role other than "user" and
    "assistant"."""

    def __init__(self, held: Held, role: Role | None) -> None:
        self._held = held
        self._role = role

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation so far, read-only."""
        return tuple(self._held.folding.messages)

    @property
    def aggregation(self) -> str:
        """The text being collected, trimmed; if there is none, the last collected text, or ""."""
        return self._held.aggregation(self._role)

    def process_frame(self, frame: object, direction: object = None) -> tuple[Frame, ...]:
        """Returns the frame that results from this one, if it completed text or requested a run; otherwise nothing.

        Frames that do not concern this half are ignored. A frame with the id of an earlier one changes nothing. There
        is only one direction: the argument is accepted for programs that pass it, and ignored.
        """
        known = self._understood(frame)
        return self._output() if known is not None and self._held.take(known) else ()

    @abstractmethod
    def _understood(self, frame: object) -> KnownFrame | None:
        """Returns the frame in the form for the fold; None for a frame that is ignored."""

    @abstractmethod
    def _output(self) -> tuple[Frame, ...]:
        """Returns the result of the frame that was just folded."""


class Held:
    """A conversation in memory: its state, what its last frame requested and wrote (`said` by either side, `answer` by
    the assistant), and the last text of each side."""

    def __init__(self, context: HasWire) -> None:
        wire = context.to_wire()
        terms = RequestParameters(tuple(wire["tools"]), wire["tool_choice"], wire["settings"])
        self.folding = Folding(Conversation.starting(ContextId("in memory"), terms, wire["messages"]))
        self.asked = False
        self.said = ""
        self.answer = ""
        self._collected: dict[Role | None, str] = {"user": "", "assistant": "", None: ""}

    def take(self, frame: KnownFrame) -> bool:
        """Fold the frame. Returns whether it completed words or requested a run."""
        step = self.folding.step(frame)
        changes = () if step is None else step.changes
        self.asked = any(isinstance(change, RunRequested) for change in changes)
        self.said = ""
        self.answer = ""
        if not isinstance(frame, _OF_MESSAGES):
            for change in changes:
                if isinstance(change, MessageAppended | MessageReplaced):
                    self._collect(change.message)
        if self.folding.state.turn is not None:
            self._collected |= {"user": "", None: ""}
        if self.folding.state.speech.response is not None:
            self._collected |= {"assistant": "", None: ""}
        return self.asked or bool(self.said)

    def aggregation(self, role: Role | None) -> str:
        """Returns what this role is saying, or said last; without a role, that of the side that speaks, the user
        first."""
        state = self.folding.state
        hears = trimmed(state.turn.words) if state.turn and role != "assistant" else ""
        speaks = trimmed(state.speech.response.text) if state.speech.response and role != "user" else ""
        return hears or speaks or self._collected[role]

    def _collect(self, message: Message) -> None:
        role, text = message.get("role"), message.get("content")
        if role in ("user", "assistant") and isinstance(text, str):
            self._collected |= {role: text, None: text}
            self.said = text
            if role == "assistant":
                self.answer = text


def known_frame(frame: object) -> KnownFrame | None:
    """Returns the frame if the fold has a rule for it. This depends on its type, whatever its subclass."""
    if isinstance(frame, Frame) and isinstance(frame, FRAME_TYPES.get(frame.type, ())):
        return cast(KnownFrame, frame)
    return None


def side_of(frame: KnownFrame) -> Role | None:
    """Returns the side of a frame; None for frames that concern both: interruptions, and frames of clients."""
    if frame.said_by == "user":
        return "user"
    if frame.said_by is not None or isinstance(frame, OfRun):
        return "assistant"
    return None

"""One side of a conversation in memory, and the state that it holds alone or shares with the other side."""

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
"""Frames of clients about messages. Nobody says these messages now, so they are not collected."""


class Half(ABC):
    """Collects what one role says; without a role, what both say. Raises ValueError for a role that is neither "user"
    nor "assistant"."""

    def __init__(self, held: Held, role: Role | None) -> None:
        self._held = held
        self._role = role

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation by now, for reading only."""
        return tuple(self._held.folding.messages)

    @property
    def aggregation(self) -> str:
        """The text being collected, trimmed; when nothing is, what was collected last, or ""."""
        return self._held.aggregation(self._role)

    def process_frame(self, frame: object, direction: object = None) -> tuple[Frame, ...]:
        """Returns the frame that results from this one, if it completed text or requested a run; else nothing.

        Frames that do not concern this half are ignored. A frame whose id came before changes nothing. There is one
        direction: the argument is accepted for programs that pass it, and ignored.
        """
        known = self._understood(frame)
        return self._output() if known is not None and self._held.take(known) else ()

    @abstractmethod
    def _understood(self, frame: object) -> KnownFrame | None:
        """Returns the frame as the fold has to see it; None for one that is ignored."""

    @abstractmethod
    def _output(self) -> tuple[Frame, ...]:
        """Returns what results from the frame that was just folded."""


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
        """What this role is saying, or said last; without a role, the one that speaks, the user first."""
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
    """The frame, if the fold has a rule for it. Its type says so, whatever subclass of that type's class it is."""
    if isinstance(frame, Frame) and isinstance(frame, FRAME_TYPES.get(frame.type, ())):
        return cast(KnownFrame, frame)
    return None


def side_of(frame: KnownFrame) -> Role | None:
    """Which side a frame comes from; None for what concerns both: interruptions, and what clients say."""
    if frame.said_by == "user":
        return "user"
    if frame.said_by is not None or isinstance(frame, OfRun):
        return "assistant"
    return None

"""What a crash left unsaid, from the frames that the log has. Pure.

A process that dies takes along what Pipecat had not written into its context yet: the words of an answer that was being
spoken, the words of a turn that was being heard, and whether a call that had begun has happened. A result that the log
has and Pipecat had not, as of a function that a service of ours ran, is told: the model would else call it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
    LLMTextFrame,
    TextFrame,
    TranscriptionFrame,
    TranslationFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger_services import call_words
from frameledger_services.pipecat.mirror import Appended, Change, Rewritten
from frameledger_services.pipecat.values import to_json

IN_PROGRESS, COMPLETED, CANCELLED = "IN_PROGRESS", "COMPLETED", "CANCELLED"
SPOKEN = "spoken"
"""In the metadata of the frame that asks a worker of ours: whether a voice will speak what is answered."""


@dataclass(slots=True)
class _Words:
    """Words that are not in a message yet. `over`: what they belong to has ended since, so that the next of its kind
    begins anew."""

    pieces: list[tuple[str, bool]] = field(default_factory=list)
    over: bool = False

    def add(self, text: str, exactly: bool) -> None:
        self.pieces.append((text, exactly))
        self.over = False

    def begin(self) -> None:
        if self.over:
            self.pieces.clear()
            self.over = False

    def said_in(self, message: Mapping[str, Any]) -> bool:
        content = message.get("content")
        if isinstance(content, list):
            parts = [part.get("text") for part in content if isinstance(part, Mapping)]
            content = " ".join(part for part in parts if isinstance(part, str))
        return isinstance(content, str) and bool(self.text) and _plain(self.text) in _plain(content)

    @property
    def text(self) -> str:
        text, before = "", True
        for piece, exactly in self.pieces:
            seam = text and not (exactly and before) and not text[-1].isspace() and not piece[:1].isspace()
            text += f" {piece}" if seam else piece
            before = exactly
        return text.strip()


@dataclass(slots=True)
class Unsaid:
    """What frames say that messages do not."""

    heard: _Words = field(default_factory=_Words)
    spoken_by_user: _Words = field(default_factory=_Words)
    first: str | None = None
    is_spoken: bool = False
    """Whether a voice speaks what a worker of ours writes."""

    is_written: bool = False
    """Whether what was heard is what such a worker wrote."""

    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Calls that were begun, by id: function and arguments."""

    ends: dict[str, str] = field(default_factory=dict)
    """What became of calls, by id, in Pipecat's words. A service may have ended one that the process never heard of."""

    def see(self, frame: AnyFrame) -> None:
        match frame:
            case TranscriptionFrame() if not isinstance(frame, InterimTranscriptionFrame | TranslationFrame):
                self._note("user", not self.spoken_by_user.pieces)
                self.spoken_by_user.add(frame.text, frame.includes_inter_frame_spaces)
            case InterimTranscriptionFrame() | TranslationFrame():
                pass
            case LLMTextFrame() if frame.run_id is not None and self.is_spoken:
                # A worker wrote it. What was heard of it is told beside it.
                pass
            case TextFrame() if frame.append_to_context:
                if isinstance(frame, LLMTextFrame):
                    self.is_written = self.is_written or frame.run_id is not None
                elif self.is_written:
                    # Somebody speaks what the worker wrote.
                    self.heard, self.is_written, self.is_spoken = _Words(), False, True
                self._note("assistant", not self.heard.pieces)
                self.heard.add(
                    frame.text, isinstance(frame, LLMTextFrame) or frame.includes_inter_frame_spaces
                )
            case LLMRunFrame():
                self.is_spoken, self.is_written = frame.metadata.get(SPOKEN) is True, False
            case LLMFullResponseStartFrame():
                self.heard.begin()
                if (frame.attempt or 1) > 1:
                    # It says anew what the attempt before had said.
                    self.heard = _Words()
            case LLMFullResponseEndFrame() | InterruptionFrame():
                self.heard.over = True
            case UserStartedSpeakingFrame():
                self.spoken_by_user.begin()
            case UserStoppedSpeakingFrame():
                self.spoken_by_user.over = True
            case FunctionCallsStartedFrame():
                for call in frame.function_calls:
                    self._begun(call)
            case FunctionCallInProgressFrame():
                self._begun(frame)
            case FunctionCallResultFrame() if frame.properties is None or frame.properties.is_final:
                said = json.dumps(to_json(frame.result), ensure_ascii=False) if frame.result else COMPLETED
                self.ends[frame.tool_call_id] = said
            case FunctionCallCancelFrame():
                self.calls.pop(frame.tool_call_id, None)
                self.ends[frame.tool_call_id] = CANCELLED
            case EndFrame() | CancelFrame():
                # The process said its last, after a last look at the context: nothing is unsaid.
                self.heard, self.spoken_by_user, self.calls = _Words(), _Words(), {}
            case LLMMessagesAppendFrame() | LLMMessagesUpdateFrame():
                for message in frame.messages:
                    self._said(message)

    def _begun(self, call: FunctionCallFromLLM | FunctionCallInProgressFrame) -> None:
        self.calls[call.tool_call_id] = (call.function_name, _text(call.arguments))
        self.ends.pop(call.tool_call_id, None)

    def _said(self, message: Mapping[str, Any]) -> None:
        if message.get("role") == "assistant" and self.heard.said_in(message):
            self.heard = _Words()
        if message.get("role") == "user" and self.spoken_by_user.said_in(message):
            self.spoken_by_user = _Words()
        for id_ in _call_ids(message):
            # It was told. If it is in no message now, the application took it out.
            self.calls.pop(id_, None)

    def _note(self, who: str, is_first: bool) -> None:
        other = self.heard if who == "user" else self.spoken_by_user
        if is_first and not other.pieces:
            self.first = who


def repairs(messages: Sequence[Any], frames: Iterable[AnyFrame], *, ambiguous: bool = True) -> list[Change]:
    """The changes that tell what a crash left unsaid, in their order; nothing, where nothing is missing.

    `frames` are those since the messages before the newest ones; what they say and the messages have is left out, so
    frames too many do no harm. Without `ambiguous` calls that had begun are left as they are.
    """
    unsaid = Unsaid()
    for frame in frames:
        unsaid.see(frame)
    found: list[Change] = list(_open_calls(messages, unsaid.ends)) if ambiguous else []
    known = {id_ for message in messages for id_ in _call_ids(message)}
    behind: list[Any] = []
    for id_, (name, arguments) in unsaid.calls.items():
        if ambiguous and id_ not in known:
            called = {"id": id_, "function": {"name": name, "arguments": arguments}, "type": "function"}
            behind.append({"role": "assistant", "tool_calls": [called]})
            became = unsaid.ends.get(id_) or call_words.ambiguous(name)
            behind.append({"role": "tool", "content": became, "tool_call_id": id_})
    words = [("assistant", unsaid.heard.text), ("user", unsaid.spoken_by_user.text)]
    if unsaid.first == "user":
        words.reverse()
    behind += [{"role": role, "content": text} for role, text in words if text]
    return [*found, Appended(tuple(behind))] if behind else found


def is_being_answered(frames: Iterable[AnyFrame]) -> bool:
    """Whether a worker of ours still answers, for all that these frames say."""
    asked = False
    for frame in frames:
        match frame:
            case LLMRunFrame():
                asked = SPOKEN in frame.metadata
            case LLMFullResponseEndFrame() | InterruptionFrame() | EndFrame() | CancelFrame():
                asked = False
            case ErrorFrame() if frame.fatal:
                asked = False
    return asked


def _open_calls(messages: Sequence[Any], ends: Mapping[str, str]) -> Iterable[Rewritten]:
    names = {
        call.get("id"): str(call.get("function", {}).get("name", "?"))
        for message in messages
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    }
    finished = {
        id_ for message in messages for id_, status in [_in_background(message)] if status == "finished"
    }
    for index, message in enumerate(messages):
        if message.get("role") != "tool":
            continue
        id_, status = _in_background(message)
        if message.get("content") == IN_PROGRESS or (status == "running" and id_ not in finished):
            called = message.get("tool_call_id")
            became = ends.get(str(called)) or call_words.ambiguous(names.get(called, "?"))
            yield Rewritten(index, {**message, "content": became})


def _in_background(message: Mapping[str, Any]) -> tuple[Any, Any]:
    """The id and status of a call in the background of which this message tells."""
    content = message.get("content")
    if message.get("role") not in ("tool", "developer") or not isinstance(content, str) or content[:1] != "{":
        return None, None
    try:
        told = json.loads(content)
    except ValueError:
        return None, None
    is_one = isinstance(told, dict) and told.get("type") == "async_tool"
    return (told.get("tool_call_id"), told.get("status")) if is_one else (None, None)


def _call_ids(message: Mapping[str, Any]) -> Iterable[str]:
    if isinstance(id_ := message.get("tool_call_id"), str):
        yield id_
    for call in message.get("tool_calls") or ():
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            yield call["id"]


def _plain(text: str) -> str:
    return "".join(text.split())


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

"""Finds content that the frames on the log have and the messages lack. Pure.

If the process dies, the messages lack what Pipecat had not yet written into its context: the words of an answer that
was being spoken, the words of a user turn, and the outcome of calls that had started.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
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
    LLMMirrorFrame,
    LLMRunFrame,
    LLMTextFrame,
    TextFrame,
    TranscriptionFrame,
    TranslationFrame,
    UnknownFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger_services.pipecat.unrecorded_words import CUT, ENDED, OPEN, UnrecordedWords
from frameledger_services.pipecat.values import to_json

COMPLETED, CANCELLED = "COMPLETED", "CANCELLED"
SPOKEN = "spoken"
"""In the metadata of the frame that requests a run: whether the answer will be spoken."""

MUTED, UNMUTED = "pipecat/UserMuteStartedFrame", "pipecat/UserMuteStoppedFrame"
"""Between these frames Pipecat drops what the user says."""


@dataclass(slots=True)
class Unrecorded:
    """The content of frames that is not in the messages."""

    heard: UnrecordedWords = field(default_factory=UnrecordedWords)
    spoken_by_user: UnrecordedWords = field(default_factory=UnrecordedWords)
    first: str | None = None
    is_muted: bool = False
    """Whether Pipecat drops what the user says."""

    is_spoken: bool = False
    """Whether the answers of workers are spoken."""

    is_written: bool = False
    """Whether the collected words are text that a worker wrote."""

    calls: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Started calls by id: function and arguments."""

    ends: dict[str, str] = field(default_factory=dict)
    """Results of calls by id, in Pipecat's form. A service can have ended a call that the process did not know."""

    @classmethod
    def of(cls, frames: Iterable[AnyFrame]) -> Self:
        """Returns the content that these frames have and the messages lack."""
        unrecorded = cls()
        for frame in frames:
            unrecorded.take(frame)
        return unrecorded

    @property
    def is_complete(self) -> bool:
        """Whether the frames so far contain all words that are in no message, and earlier frames contain none."""
        return self.heard.is_complete and self.spoken_by_user.is_complete

    def take(self, frame: AnyFrame) -> None:
        match frame:
            case InterimTranscriptionFrame() | TranslationFrame():
                pass
            case TranscriptionFrame():
                if not self.is_muted:
                    self._note("user", not self.spoken_by_user.pieces)
                    self.spoken_by_user.add(frame.text, frame.includes_inter_frame_spaces)
            case UnknownFrame() if frame.type in (MUTED, UNMUTED):
                self.is_muted = frame.type == MUTED
            case LLMMirrorFrame():
                # Another process, whose user is not muted.
                self.is_muted = False
            case LLMTextFrame() if self.is_spoken and _is_for_a_voice(frame):
                # Written by a worker. Its spoken words are separate frames.
                pass
            case TextFrame() if frame.append_to_context:
                self._take_text(frame)
            case LLMRunFrame():
                self.is_spoken, self.is_written = frame.metadata.get(SPOKEN) is True, False
            case LLMFullResponseStartFrame():
                self.heard.begin()
                if (frame.attempt or 1) > 1:
                    # A new attempt repeats the text of the previous one.
                    self.heard.clear()
            case LLMFullResponseEndFrame() if self.is_spoken and _is_for_a_voice(frame):
                # From a worker. Its words are being spoken.
                pass
            case LLMFullResponseEndFrame():
                self.heard.state = ENDED
            case InterruptionFrame():
                self.heard.state = CUT
            case UserStartedSpeakingFrame():
                # Earlier words can still be in the aggregator, as in realtime pipelines.
                self.spoken_by_user.state = OPEN
            case UserStoppedSpeakingFrame():
                self.spoken_by_user.state = CUT
            case FunctionCallsStartedFrame():
                for call in frame.function_calls:
                    self._note_call(call)
            case FunctionCallInProgressFrame():
                self._note_call(frame)
            case FunctionCallResultFrame() if frame.properties is None or frame.properties.is_final:
                result = json.dumps(to_json(frame.result), ensure_ascii=False) if frame.result else COMPLETED
                self.ends[frame.tool_call_id] = result
            case FunctionCallCancelFrame():
                self.calls.pop(frame.tool_call_id, None)
                self.ends[frame.tool_call_id] = CANCELLED
            case EndFrame() | CancelFrame():
                # The process ended normally, after a last comparison of the context: nothing is missing.
                self.heard.clear()
                self.spoken_by_user.clear()
                self.calls.clear()
            case LLMMessagesAppendFrame() | LLMMessagesUpdateFrame():
                is_appended = isinstance(frame, LLMMessagesAppendFrame)
                for message in frame.messages:
                    self._remove_recorded(message, is_appended=is_appended)

    def _take_text(self, frame: TextFrame) -> None:
        if isinstance(frame, LLMTextFrame):
            self.is_written = self.is_written or _is_for_a_voice(frame)
        elif self.is_written:
            # The worker's text is being spoken.
            self.heard = UnrecordedWords(is_complete=self.heard.is_complete)
            self.is_written, self.is_spoken = False, True
        self._note("assistant", not self.heard.pieces)
        self.heard.add(frame.text, isinstance(frame, LLMTextFrame) or frame.includes_inter_frame_spaces)

    def _note_call(self, call: FunctionCallFromLLM | FunctionCallInProgressFrame) -> None:
        self.calls[call.tool_call_id] = (call.function_name, _text(call.arguments))
        self.ends.pop(call.tool_call_id, None)

    def _remove_recorded(self, message: Mapping[str, Any], *, is_appended: bool) -> None:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            self.heard.remove_recorded(content, is_appended=is_appended)
        elif role == "user":
            self.spoken_by_user.remove_recorded(content, is_appended=is_appended)
        for id_ in call_ids(message):
            # The call was in a message. If it is in none any more, the application removed it.
            self.calls.pop(id_, None)

    def _note(self, who: str, is_first: bool) -> None:
        other = self.heard if who == "user" else self.spoken_by_user
        if is_first and not other.pieces:
            self.first = who


def _is_for_a_voice(frame: LLMTextFrame | LLMFullResponseEndFrame) -> bool:
    """Returns whether a worker wrote this text to be spoken, if the pipeline has speech."""
    return frame.run_id is not None and not frame.skip_tts


def call_ids(message: Mapping[str, Any]) -> Iterable[str]:
    """Yields the ids of the calls that a message makes or answers."""
    if isinstance(id_ := message.get("tool_call_id"), str):
        yield id_
    for call in message.get("tool_calls") or ():
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            yield call["id"]


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

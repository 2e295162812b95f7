"""Computes from the log's frames the messages that a crash lost. Pure.

If the process dies, the messages miss what Pipecat had not written into its context yet: the words of an answer that
was being spoken, the words of a user turn, and the outcome of calls that had started. A result that is on the log but
not in the messages, such as that of a function service, is added: otherwise the model would call the function again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
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
from frameledger_services import call_words
from frameledger_services.pipecat.mirror import Appended, Change, Rewritten
from frameledger_services.pipecat.values import to_json

IN_PROGRESS, COMPLETED, CANCELLED = "IN_PROGRESS", "COMPLETED", "CANCELLED"
SPOKEN = "spoken"
"""In the metadata of the frame that requests a run: whether the answer will be spoken."""

MUTED, UNMUTED = "pipecat/UserMuteStartedFrame", "pipecat/UserMuteStoppedFrame"
"""Between them Pipecat drops what the user says."""

OPEN, ENDED, CUT = "open", "ended", "cut"
"""States of an answer or turn: its words still come; later words are of the next one; no later words of it are kept."""


@dataclass(slots=True)
class _Words:
    """Words of one role that are in no message yet.

    Pipecat writes all words that its aggregator has into one message, and continues with none. Not all words that were
    captured reach the aggregator, and not every message of the role is written by it. A message that is appended means:

    | the message has                   | its answer or turn | so of the words                         | there remain |
    | --------------------------------- | ------------------ | --------------------------------------- | ------------ |
    | all words                         | any                | all are in it                           | none         |
    | some, and no other text           | open, ended        | earlier ones were dropped (MinWords...) | later ones   |
    | some, and no other text           | cut                | the others were dropped                 | none         |
    | other text (redacted, translated) | ended, cut         | all are in it in another form           | none         |
    | other text                        | open               | none: the application wrote it          | all          |
    | parts, and not these words        | any                | none: the application wrote it          | all          |

    The first and the third row hold for the messages of an update, too. Its other messages can be older than the words.
    """

    pieces: list[tuple[str, bool]] = field(default_factory=list)
    state: str = OPEN
    is_complete: bool = False
    """Whether there cannot be words before the first frame that was taken."""

    _known_plain: str | None = None
    """An update can have many messages while many words wait."""

    def add(self, text: str, exactly: bool) -> None:
        self.pieces.append((text, exactly))
        self.state, self._known_plain = OPEN, None

    def begin(self) -> None:
        """Begin the next answer. Words that remain of one that is over were dropped."""
        if self.state != OPEN or not self.pieces:
            self.clear()

    def clear(self) -> None:
        self._keep([])
        self.state, self.is_complete = OPEN, True

    def remove_recorded(self, content: Any, *, is_appended: bool) -> None:
        """Remove the words that a message with this content settles."""
        text, whole = _plain(_text_of(content)), self._plain_text
        if not text or not whole:
            self.is_complete = self.is_complete or (is_appended and bool(text))
        elif whole in text:
            self.clear()
        elif count := self._count_until_end_of(text):
            later = self.pieces[count:]
            if self.state == CUT:
                self.clear()
            elif is_appended:
                self.clear()
                self._keep(later)
        elif is_appended and isinstance(content, str) and self.state != OPEN:
            self.clear()

    def _count_until_end_of(self, text: str) -> int:
        """Returns the number of pieces up to the end of those that make up this text; 0 if none do."""
        whole, ends = self._plain_text, [0]
        at = whole.find(text)
        if at >= 0:
            ends += accumulate(len(_plain(piece)) for piece, _ in self.pieces)
        while at >= 0:
            if at in ends and at + len(text) in ends:
                return ends.index(at + len(text))
            at = whole.find(text, at + 1)
        return 0

    def _keep(self, pieces: list[tuple[str, bool]]) -> None:
        self.pieces, self._known_plain = pieces, None

    @property
    def _plain_text(self) -> str:
        if self._known_plain is None:
            self._known_plain = "".join(_plain(piece) for piece, _ in self.pieces)
        return self._known_plain

    @property
    def text(self) -> str:
        text, before = "", True
        for piece, exactly in self.pieces:
            seam = text and not (exactly and before) and not text[-1].isspace() and not piece[:1].isspace()
            text += f" {piece}" if seam else piece
            before = exactly
        return text.strip()


def _is_for_a_voice(frame: LLMTextFrame | LLMFullResponseEndFrame) -> bool:
    """Returns whether a worker wrote this for a voice to speak, if there is one."""
    return frame.run_id is not None and not frame.skip_tts


@dataclass(slots=True)
class Unrecorded:
    """The content of frames that is not in the messages."""

    heard: _Words = field(default_factory=_Words)
    spoken_by_user: _Words = field(default_factory=_Words)
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
                # Written by a worker. Its spoken words are frames of their own.
                pass
            case TextFrame() if frame.append_to_context:
                if isinstance(frame, LLMTextFrame):
                    self.is_written = self.is_written or _is_for_a_voice(frame)
                elif self.is_written:
                    # The worker's text is being spoken.
                    self.heard = _Words(is_complete=self.heard.is_complete)
                    self.is_written, self.is_spoken = False, True
                self._note("assistant", not self.heard.pieces)
                self.heard.add(
                    frame.text, isinstance(frame, LLMTextFrame) or frame.includes_inter_frame_spaces
                )
            case LLMRunFrame():
                self.is_spoken, self.is_written = frame.metadata.get(SPOKEN) is True, False
            case LLMFullResponseStartFrame():
                self.heard.begin()
                if (frame.attempt or 1) > 1:
                    # A new attempt repeats the text of the previous one.
                    self.heard.clear()
            case LLMFullResponseEndFrame() if self.is_spoken and _is_for_a_voice(frame):
                # Of a worker. Its words are being spoken.
                pass
            case LLMFullResponseEndFrame():
                self.heard.state = ENDED
            case InterruptionFrame():
                self.heard.state = CUT
            case UserStartedSpeakingFrame():
                # What was said before can be in the aggregator still, as in realtime pipelines.
                self.spoken_by_user.state = OPEN
            case UserStoppedSpeakingFrame():
                self.spoken_by_user.state = CUT
            case FunctionCallsStartedFrame():
                for call in frame.function_calls:
                    self._note_call(call)
            case FunctionCallInProgressFrame():
                self._note_call(frame)
            case FunctionCallResultFrame() if frame.properties is None or frame.properties.is_final:
                result_text = (
                    json.dumps(to_json(frame.result), ensure_ascii=False) if frame.result else COMPLETED
                )
                self.ends[frame.tool_call_id] = result_text
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

    def _note_call(self, call: FunctionCallFromLLM | FunctionCallInProgressFrame) -> None:
        self.calls[call.tool_call_id] = (call.function_name, _text(call.arguments))
        self.ends.pop(call.tool_call_id, None)

    def _remove_recorded(self, message: Mapping[str, Any], *, is_appended: bool) -> None:
        role, content = message.get("role"), message.get("content")
        if role == "assistant":
            self.heard.remove_recorded(content, is_appended=is_appended)
        elif role == "user":
            self.spoken_by_user.remove_recorded(content, is_appended=is_appended)
        for id_ in _call_ids(message):
            # The call was in a message. If it is in none now, the application removed it.
            self.calls.pop(id_, None)

    def _note(self, who: str, is_first: bool) -> None:
        other = self.heard if who == "user" else self.spoken_by_user
        if is_first and not other.pieces:
            self.first = who


def repairs(messages: Sequence[Any], frames: Iterable[AnyFrame], *, ambiguous: bool = True) -> list[Change]:
    """Returns the changes that add what a crash lost, in order; empty if nothing is missing.

    `frames` reach back at least to the messages before the newest ones. Content that is in the messages is left out, so
    too many frames do no harm. Without `ambiguous`, calls that had started are not changed.
    """
    unrecorded = Unrecorded()
    for frame in frames:
        unrecorded.take(frame)
    changes: list[Change] = list(_open_calls(messages, unrecorded.ends)) if ambiguous else []
    known = {id_ for message in messages for id_ in _call_ids(message)}
    behind: list[Any] = []
    for id_, (name, arguments) in unrecorded.calls.items():
        if ambiguous and id_ not in known:
            called = {"id": id_, "function": {"name": name, "arguments": arguments}, "type": "function"}
            behind.append({"role": "assistant", "tool_calls": [called]})
            became = unrecorded.ends.get(id_) or call_words.ambiguous(name)
            behind.append({"role": "tool", "content": became, "tool_call_id": id_})
    words = [("assistant", unrecorded.heard.text), ("user", unrecorded.spoken_by_user.text)]
    if unrecorded.first == "user":
        words.reverse()
    behind += [{"role": role, "content": text} for role, text in words if text]
    return [*changes, Appended(tuple(behind))] if behind else changes


def has_all_unrecorded(frames: Iterable[AnyFrame]) -> bool:
    """Returns whether all words that are in no message are in these frames, and none in earlier ones."""
    unrecorded = Unrecorded()
    for frame in frames:
        unrecorded.take(frame)
    return unrecorded.heard.is_complete and unrecorded.spoken_by_user.is_complete


def is_being_answered(frames: Iterable[AnyFrame]) -> bool:
    """Returns whether these frames end with an open run of a worker."""
    is_asked = False
    for frame in frames:
        match frame:
            case LLMRunFrame():
                is_asked = SPOKEN in frame.metadata
            case LLMFullResponseEndFrame() | InterruptionFrame() | EndFrame() | CancelFrame():
                is_asked = False
            case ErrorFrame() if frame.fatal:
                is_asked = False
    return is_asked


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
    """Returns the id and status of the background call that this message reports; (None, None) if it reports none."""
    content = message.get("content")
    if message.get("role") not in ("tool", "developer") or not isinstance(content, str) or content[:1] != "{":
        return None, None
    try:
        report = json.loads(content)
    except ValueError:
        return None, None
    is_one = isinstance(report, dict) and report.get("type") == "async_tool"
    return (report.get("tool_call_id"), report.get("status")) if is_one else (None, None)


def _call_ids(message: Mapping[str, Any]) -> Iterable[str]:
    if isinstance(id_ := message.get("tool_call_id"), str):
        yield id_
    for call in message.get("tool_calls") or ():
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            yield call["id"]


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        content = " ".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _plain(text: str) -> str:
    return "".join(text.split())


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)

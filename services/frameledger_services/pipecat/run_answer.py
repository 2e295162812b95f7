"""Turns the stored frames of one answer into output for the pipeline. Pure.

If a worker dies, another attempt generates the answer again. Output cannot be taken back: there is no output until the
new attempt has repeated the text so far, and it continues from there. If the new text differs, the whole text is output
as a new answer (`AnswerRestarted`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    Usage,
)
from frameledger_services.client import StoredFrame
from frameledger_services.resumed_text import ResumedText


@dataclass(frozen=True, slots=True)
class AnswerRestarted:
    """The new attempt differs from the text that was output: the answer starts again."""


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """The end of an answer, with its calls and token usage."""

    calls: tuple[FunctionCallFromLLM, ...] = ()
    group_id: str | None = None
    usage: Usage | None = None
    failure: str | None = None
    """Why the answer is missing or incomplete; None if it is complete."""

    is_new: bool = False
    """Whether the failure is not on the log yet."""


AnswerPart = (
    str | LLMThoughtStartFrame | LLMThoughtTextFrame | LLMThoughtEndFrame | AnswerRestarted | AnswerEnded
)


@dataclass(slots=True)
class RunAnswer:
    """The answer to the request with this frame id. `take` gets the frames in the order of their versions."""

    question: UUID
    asked_version: int | None = None
    has_begun: bool = False
    _run_id: str | None = None
    _resumed: ResumedText = field(default_factory=ResumedText)
    _generated: str = ""
    _thoughts_sent: int = 0
    _thoughts: int = 0
    _calls: list[FunctionCallFromLLM] = field(default_factory=list)
    _group_id: str | None = None
    _error: str | None = None

    def take(self, stored: StoredFrame, frame: AnyFrame) -> Iterator[AnswerPart]:
        """Yields the output of a stored frame. `frame` is its decoded payload."""
        if stored.frame_id == self.question:
            self.asked_version = stored.version
            if stored.outcome != "applied":
                yield AnswerEnded(failure=_why_ignored(stored.reason), is_new=True)
            return
        if self.asked_version is None or stored.outcome != "applied":
            return
        match frame:
            case LLMFullResponseStartFrame() if frame.run_id is not None:
                self._start(frame, self.asked_version)
            case ErrorFrame() if self._is_mine(frame) or (not self.has_begun and frame.fatal):
                self._error = f"{frame.code or 'provider_error'}: {frame.message or 'the run failed'}"
                if frame.fatal:
                    yield AnswerEnded(failure=self._error)
            case InterruptionFrame() | EndFrame() | CancelFrame():
                yield AnswerEnded()
            case _ if self.has_begun and self._is_mine(frame):
                yield from self._take_output(frame)

    def _is_mine(self, frame: AnyFrame) -> bool:
        run_id = getattr(frame, "run_id", None)
        return run_id is not None and run_id == self._run_id

    def _start(self, frame: LLMFullResponseStartFrame, asked_version: int) -> None:
        if not self.has_begun:
            if frame.context_version is not None and frame.context_version < asked_version:
                return
            self.has_begun, self._run_id = True, frame.run_id
        elif frame.run_id != self._run_id:
            return
        self._generated, self._thoughts, self._calls, self._error = "", 0, [], None

    def _take_output(self, frame: AnyFrame) -> Iterator[AnswerPart]:
        match frame:
            case LLMTextFrame() if frame.text and frame.append_to_context:
                yield from self._text(frame.text)
            case LLMThoughtStartFrame():
                self._thoughts += 1
                if self._thoughts > self._thoughts_sent:
                    yield frame
            case LLMThoughtTextFrame() if self._thoughts > self._thoughts_sent:
                yield frame
            case LLMThoughtEndFrame() if self._thoughts > self._thoughts_sent:
                self._thoughts_sent = self._thoughts
                yield frame
            case FunctionCallsStartedFrame():
                self._calls += frame.function_calls
                self._group_id = frame.group_id
            case LLMFullResponseEndFrame() if frame.finish_reason == "error":
                yield AnswerEnded(usage=frame.usage, failure=self._error or "The model's provider failed.")
            case LLMFullResponseEndFrame():
                yield AnswerEnded(tuple(self._calls), self._group_id, frame.usage)

    def _text(self, piece: str) -> Iterator[AnswerPart]:
        self._generated += piece
        more = self._resumed.more(self._generated)
        if more is None:
            self._resumed.restart(self._generated)
            yield AnswerRestarted()
            yield self._generated
        elif more:
            yield more


def _why_ignored(reason: str | None) -> str:
    if reason == "mirror_superseded":
        return "Another process has taken over this conversation."
    return f"The request was ignored ({reason})."

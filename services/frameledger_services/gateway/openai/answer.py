"""Folds the frames after a question into its answer: text, calls, finish reason, usage.

An answer may take several runs: a model calls functions, and runs again with their results. Their texts are one
answer, with a blank line between them. It has no thoughts, calls and results.

If a worker dies, the context drops the text of its attempt, and the next attempt begins anew. An answer that is
returned whole drops it too. A streamed answer cannot take text back: it waits until the new attempt has repeated what
was sent, and continues from there. If the new text differs, the answer fails (`answer_superseded`): its client would
otherwise read two answers as one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from frameledger.evolve import text
from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TextFrame,
    Usage,
)
from frameledger.surrogates import has_half, is_first_half
from frameledger_services.resumed_text import ResumedText

TYPES = (
    "LLMFullResponseStartFrame",
    "LLMFullResponseEndFrame",
    "LLMTextFrame",
    "TextFrame",
    "VisionFullResponseStartFrame",
    "VisionFullResponseEndFrame",
    "VisionTextFrame",
    "FunctionCallsStartedFrame",
    "InterruptionFrame",
    "ErrorFrame",
    "EndFrame",
    "CancelFrame",
)
"""The types of the frames that are read."""

STARTS = ("LLMFullResponseStartFrame", "VisionFullResponseStartFrame")
"""The types of the frames that start a run, or an attempt of it."""

SUPERSEDED = "answer_superseded"
"""The code of an answer that failed because the next attempt did not repeat the words that were sent."""

BETWEEN = "\n\n"
"""The separator between the texts of two runs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why there is no answer, or why it broke off."""

    code: str
    message: str


@dataclass(slots=True)
class Answer:
    """An answer while it arrives. `take` gets its applied frames in the order of their versions, each once."""

    asked_version: int
    """The version of the question. A run that reads an older context answers something else."""

    run_id: str | None = None
    """The first run that answers. None until one does, or if the answering program names no run."""

    model: str | None = None
    has_begun: bool = False
    is_open: bool = False
    """Whether a run is answering."""

    has_something: bool = False
    """Whether the run has produced text, called a function, or ended."""

    was_interrupted: bool = False
    finish_reason: str | None = None
    failure: Failure | None = None
    usage: Counter[str] = field(default_factory=Counter)
    """Tokens by kind, for the kinds that providers counted."""

    _current: str | None = None
    _before: str = ""
    """The text of the previous runs."""

    _text: str = ""
    """The text of this attempt, its pieces joined."""

    _has_half: bool = False
    """Whether a piece ended within a surrogate pair. Most answers have no such piece, and need no further search."""

    _carries_spaces: bool = True
    _resumed: ResumedText = field(default_factory=ResumedText)
    _error: Failure | None = None

    def take(self, frame: AnyFrame) -> None:
        """Read a frame."""
        match frame:
            case LLMFullResponseStartFrame():
                self._start(frame)
            case ErrorFrame():
                self._fail(frame)
            case InterruptionFrame() | EndFrame() | CancelFrame():
                self._cut_short()
            case _ if not self.is_open or not self._is_of_this_run(frame):
                return
            case TextFrame() if frame.append_to_context:
                self._add_text(frame)
            case LLMFullResponseEndFrame():
                self._end(frame)
            case _:
                self.has_something = True

    @property
    def current_run_id(self) -> str | None:
        """The run that answered last."""
        return self._current

    def fail(self, code: str, message: str) -> None:
        """Record why there is no answer, or no more of it. Keeps the first reason."""
        self.failure = self.failure or Failure(code, message)

    @property
    def text(self) -> str:
        """The text of the answer as the context has it, without the words of superseded attempts."""
        spoken = self._text
        if self.is_open and spoken and is_first_half(spoken[-1]):
            # The other half of the pair comes with the next piece.
            spoken = spoken[:-1]
        spoken = (text.whole(spoken) if self._has_half else spoken).strip()
        return self._before + (BETWEEN if self._before and spoken else "") + spoken

    def more(self) -> str:
        """Returns the text that follows what earlier calls returned; "" if there is none for now."""
        new = self._resumed.more(self.text, may_grow=self.is_open)
        if new is None:
            self._supersede()
        return new or ""

    def _supersede(self) -> None:
        self.fail(
            SUPERSEDED,
            "The worker that wrote this answer died, and the new attempt of another worker differs: discard what was "
            "sent. The conversation has the new answer.",
        )

    def _start(self, frame: LLMFullResponseStartFrame) -> None:
        is_newer = frame.context_version is None or frame.context_version >= self.asked_version
        if not self.has_begun and not is_newer:
            return
        if not self.has_begun:
            self.has_begun = True
            self.run_id = frame.run_id
        elif frame.run_id is None or frame.run_id != self._current:
            self._before = self.text
        self._current = frame.run_id
        self._text, self._has_half, self._carries_spaces, self._error = "", False, True, None
        self.model = frame.model or self.model
        self.is_open = True

    def _is_of_this_run(self, frame: AnyFrame) -> bool:
        run_id = getattr(frame, "run_id", None)
        return run_id is None or run_id == self._current

    def _add_text(self, frame: TextFrame) -> None:
        """Add a piece of text, joined as in the context (R2.2)."""
        carries = isinstance(frame, LLMTextFrame) or frame.includes_inter_frame_spaces
        piece = frame.text
        if not piece:
            return
        if self._text and not (carries and self._carries_spaces) and text.needs_space(self._text, piece):
            piece = f" {piece}"
        self._text += piece
        self._has_half = self._has_half or has_half(piece)
        self._carries_spaces = carries
        self.has_something = self.has_something or not piece.isspace()

    def _end(self, frame: LLMFullResponseEndFrame) -> None:
        self.is_open, self.has_something = False, True
        self.finish_reason = frame.finish_reason
        self._count(frame.usage)
        if frame.finish_reason == "error":
            self.failure = self._error or Failure("provider_error", "The model's provider failed.")

    def _count(self, used: Usage | None) -> None:
        if used is not None:
            counts = {name: getattr(used, name) for name in Usage.model_fields}
            self.usage.update({name: count for name, count in counts.items() if count is not None})

    def _fail(self, frame: ErrorFrame) -> None:
        if frame.tool_call_id is not None or not self._is_about_this(frame):
            return
        self._error = Failure(frame.code or "provider_error", frame.message or "The run failed.")
        if frame.fatal:
            self.failure, self.is_open, self.has_something = self._error, False, True

    def _is_about_this(self, frame: ErrorFrame) -> bool:
        if self.has_begun:
            # Only one run is open at a time, and the run of this answer is closed. So a fatal error of another run is
            # that of the run that should have continued the answer, after calls or after an input that interrupts
            # (R7.4).
            return self._is_of_this_run(frame) or (frame.fatal and self._current is not None)
        # Before a worker begins, the only error of interest is the one that ends the waiting run.
        return frame.fatal

    def _cut_short(self) -> None:
        self.was_interrupted, self.is_open, self.has_something = True, False, True

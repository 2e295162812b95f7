"""Aggregators of messages: the words of one side, between frames of any types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from frameledger.aggregators.sharing import held_by
from frameledger.aggregators.side import Half, Role, known_frame, side_of
from frameledger.context import LLMContext
from frameledger.frames import (
    Frame,
    HeardFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    KnownFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesUpdateFrame,
    TextFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)


class LLMResponseAggregator(Half):
    """Returns the conversation as `LLMMessagesUpdateFrame`, with `run_llm` true if a run is requested.

    `start_frame`, `end_frame`, `accumulator_frame` and `interim_accumulator_frame` are classes; subclasses count, and
    if several match, the nearest one. They are treated as the standard frames of the role: speaking frames and
    transcriptions, or a response and its text. An accumulator has a `text`. With `handle_interruptions` false an
    interruption is ignored. With `expect_stripped_words` false all words contain their own spaces.

    `messages` are the first messages; they are copied. A user's half and an assistant's half that are created on the
    same list share one conversation; a further half of a role begins another. Raises ValueError if two conversations
    wait for their other half, and for a role other than "user" and "assistant".
    """

    def __init__(
        self,
        *,
        messages: Iterable[Mapping[str, Any]],
        role: str,
        start_frame: type,
        end_frame: type,
        accumulator_frame: type,
        interim_accumulator_frame: type | None = None,
        handle_interruptions: bool = False,
        expect_stripped_words: bool = True,
    ) -> None:
        # Two halves cannot meet on a tuple: the empty one is the same object for all.
        made_on = messages if isinstance(messages, list) else object()
        super().__init__(held_by(role, LLMContext(messages), made_on), cast(Role, role))
        self._handles_interruptions = handle_interruptions
        self._words_bring_spaces = not expect_stripped_words
        # A transcription is also a text frame, but not one of an answer.
        self._parts: dict[type, str | None] = {HeardFrame: None} if role == "assistant" else {}
        self._parts |= {start_frame: "start", end_frame: "end", accumulator_frame: "words"}
        if interim_accumulator_frame is not None:
            self._parts[interim_accumulator_frame] = "interim"

    def _output(self) -> tuple[Frame, ...]:
        messages = tuple(dict(message) for message in self.messages)
        return (LLMMessagesUpdateFrame(messages=messages, run_llm=self._held.asked or None),)

    def _understood(self, frame: object) -> KnownFrame | None:
        part = next((self._parts[cls] for cls in type(frame).__mro__ if cls in self._parts), None)
        if part is not None:
            return self._standard(part, frame)
        known = known_frame(frame)
        if isinstance(known, InterruptionFrame):
            return known if self._handles_interruptions else None
        return known if known is not None and side_of(known) is None else None

    def _standard(self, part: str, frame: object) -> KnownFrame:
        fields: dict[str, Any] = {"id": frame.id} if isinstance(frame, Frame) else {}
        hears = self._role == "user"
        if part == "start":
            return UserStartedSpeakingFrame(**fields) if hears else LLMFullResponseStartFrame(**fields)
        if part == "end":
            return UserStoppedSpeakingFrame(**fields) if hears else LLMFullResponseEndFrame(**fields)
        spaces = self._words_bring_spaces or getattr(frame, "includes_inter_frame_spaces", False)
        fields |= {"text": cast(Any, frame).text, "includes_inter_frame_spaces": spaces}
        if part == "interim":
            return InterimTranscriptionFrame(**fields)
        if hears:
            return TranscriptionFrame(**fields)
        return TextFrame(**fields, append_to_context=getattr(frame, "append_to_context", True))


class LLMAssistantResponseAggregator(LLMResponseAggregator):
    """Collects the text of responses. `LLMTextFrame` is a `TextFrame` that contains its own spaces."""

    def __init__(
        self, messages: Iterable[Mapping[str, Any]] = (), *, expect_stripped_words: bool = True
    ) -> None:
        super().__init__(
            messages=messages,
            role="assistant",
            start_frame=LLMFullResponseStartFrame,
            end_frame=LLMFullResponseEndFrame,
            accumulator_frame=TextFrame,
            handle_interruptions=True,
            expect_stripped_words=expect_stripped_words,
        )


class LLMUserResponseAggregator(LLMResponseAggregator):
    """Collects the turns of the user. Interruptions are ignored, since they do not change the user's words."""

    def __init__(
        self, messages: Iterable[Mapping[str, Any]] = (), *, expect_stripped_words: bool = True
    ) -> None:
        super().__init__(
            messages=messages,
            role="user",
            start_frame=UserStartedSpeakingFrame,
            end_frame=UserStoppedSpeakingFrame,
            accumulator_frame=TranscriptionFrame,
            interim_accumulator_frame=InterimTranscriptionFrame,
            expect_stripped_words=expect_stripped_words,
        )


class LLMFullResponseAggregator(LLMAssistantResponseAggregator):
    """Joins the text of a response into one `TextFrame`; an empty response has none."""

    def __init__(self) -> None:
        super().__init__()

    def _output(self) -> tuple[Frame, ...]:
        # With the end of a response, words of the user that waited for it may be written too (R7.5).
        return (TextFrame(text=self._held.answer),) if self._held.answer else ()

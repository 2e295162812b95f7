"""Capture: the handlers of the frames that processors handle and push, which run in Pipecat's event loop.

A handler appends frames to a queue, and compares the context with its copy where the context may have changed. It
neither awaits nor raises; it counts frames that it cannot capture.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from time import time_ns
from typing import Any

from frameledger_services.pipecat.captured_frame import (
    ASSISTANT,
    GENERATED,
    LLM,
    OUTPUT,
    USER,
    Fields,
    Model,
    ModelService,
    TranslationState,
)
from frameledger_services.pipecat.captured_items import BACKLOG, MAX_JOINED, TOKENS, CapturedItems
from frameledger_services.pipecat.mirror import Mirror
from frameledger_services.pipecat.terms import Terms
from frameledger_services.pipecat.translate import name_of, translate
from frameledger_services.pipecat.values import given_settings, model_of, settings_of

logger = logging.getLogger("frameledger.pipecat")

CHANGES, FIELDS, ON_THE_LOG = "changes", "fields", "frameledger.on_the_log"
"""Markers instead of a capture point: changes of the messages, complete frames, or a frame that is already on the log.
A frame that came from the log has the last name in its metadata."""

MAX_CAPTURED = 50_000
"""Maximum queued items. The publishing thread takes them every 20 to 50 ms, so only a dead thread lets the queue reach
the limit."""

# Frames that are captured at certain processors; all others are captured at the first processor that sees them.
_ANSWER = {"LLMFullResponseEndFrame", "LLMThoughtStartFrame", "LLMThoughtTextFrame", "LLMThoughtEndFrame"}
_ANSWER |= {"LLMAssistantPushAggregationFrame", "FunctionCallResultFrame", "FunctionCallCancelFrame"}
_WORDS = "TextFrame"
_START, _END, _ASKED = "LLMFullResponseStartFrame", "LLMFullResponseEndFrame", "LLMContextFrame"
_ANSWER_TEXT = {_START, TOKENS}
_STREAMED = {TOKENS, "LLMThoughtTextFrame"}
_INTERRUPTION, _SETTINGS = "InterruptionFrame", "LLMUpdateSettingsFrame"
_FROM_THE_MODEL = {"MetricsFrame", "ErrorFrame", "FunctionCallsStartedFrame", "FunctionCallInProgressFrame"}
_SPEECH = {"BotStartedSpeakingFrame", "BotStoppedSpeakingFrame", _WORDS}
# The user's aggregator forwards these unless the user is muted.
_UNLESS_MUTED = {_INTERRUPTION, "UserStartedSpeakingFrame", "UserStoppedSpeakingFrame"}
# Objects that an application can change after handing them over: translated at once instead of in the thread.
_TRANSLATED_AT_ONCE = _FROM_THE_MODEL | {
    "FunctionCallResultFrame",
    "LLMThoughtEndFrame",
    "LLMUpdateSettingsFrame",
}
_TRANSLATED_AT_ONCE -= {"MetricsFrame"}
# Frequent frames that never change the context.
_WRITES_NOTHING = {
    _WORDS,
    TOKENS,
    "LLMThoughtTextFrame",
    "InterimTranscriptionFrame",
    "MetricsFrame",
    "HeartbeatFrame",
    "AudioRawFrame",
    "ImageRawFrame",
    "UserSpeakingFrame",
    "BotSpeakingFrame",
    "AggregatedTextProgressFrame",
}
_MAX_SEEN = 4096

Handler = Callable[[Any], None]
"""Called with the frame. Never raises."""

Handlers = tuple[Handler | None, Handler | None]
"""Handlers that are called before and after a processor processes, or pushes, a frame; None calls nothing."""

NO_HANDLERS: Handlers = (None, None)


class HandlersByClass(dict[type, Handlers]):
    """The handlers of one processor by frame class, chosen once per class instead of for every token."""

    def __init__(self, choose: Callable[[type], Handlers]) -> None:
        super().__init__()
        self._choose = choose

    def __missing__(self, kind: type) -> Handlers:
        handlers = self[kind] = self._choose(kind)
        return handlers


class Capture:
    """Captures one pipeline. `items` holds the captured items until the publishing thread takes them."""

    def __init__(self, note_failure: Callable[[BaseException], None]) -> None:
        self.items = CapturedItems()
        self.not_recorded: Counter[str] = Counter()
        self.lost = 0
        self.speaks = False
        self.is_answered_here = False
        """Whether inference workers answer. They publish the frames of their answers themselves."""

        self.interruptions = 0
        """The number of captured interruptions."""

        self._note_failure = note_failure
        self.context: Any = None
        self.other_contexts: list[Any] = []
        """The contexts of other aggregators of the pipeline."""

        self._has_warned = False
        self._answering: ModelService | None = None
        """The LLM service that the latest request for an answer went to."""

        self._settings: dict[str, Any] = {}
        """Its settings on the log."""

        self._mirror = Mirror()
        self._terms = Terms()
        self._seen: set[int] = set()
        self._seen_before: set[int] = set()
        self._places: list[tuple[str, bool]] = []
        """The places at which frames are seen, and whether they are pushed there."""

        self._handlers: list[HandlersByClass] = []

    def follow(
        self, context: Any, mirror: Mirror | None = None, tools: Any = None, tool_choice: Any = None
    ) -> None:
        """Compare this context with this copy from now on. `tools` and `tool_choice` (JSON) are on the log already."""
        self.context, self._mirror, self._terms = context, mirror or Mirror(), Terms(tools, tool_choice)

    def resend_history(self) -> None:
        """Publish all messages at the next sync point."""
        self._mirror = Mirror()

    def offer(self, tools: Iterable[Any]) -> None:
        """From the next comparison on, publish these tools besides those of the context."""
        self._terms.offer(tools)

    def add(self, fields: Fields) -> int | None:
        """Add a complete frame. Returns its sequence; None if the buffer is full."""
        return self._append(FIELDS, [fields])

    def handlers(self, at: str, *, pushes: bool, service: ModelService | None = None) -> HandlersByClass:
        """Returns the handlers for the frames that a processor processes, or pushes."""

        def choose(kind: type) -> Handlers:
            try:
                return self._chosen(kind, at, service, pushes=pushes)
            except Exception as error:
                self._note_failure(error)
                return NO_HANDLERS

        handlers = HandlersByClass(choose)
        self._places.append((at, pushes))
        self._handlers.append(handlers)
        for others in self._handlers:
            # The handlers of a frame depend on where else it is seen.
            others.clear()
        return handlers

    def sync(self) -> None:
        """Compare the context with its copy and add the differences."""
        context = self.context
        if context is None:
            return
        if len(self.items) > MAX_CAPTURED:
            self.resend_history()
            return
        try:
            if changes := self._mirror.changes(context.messages):
                self._append(CHANGES, changes)
        except Exception:
            self.resend_history()
            raise
        for fields in self._terms.changes(context.tools, context.tool_choice):
            self.add(fields)

    def _chosen(self, kind: type, at: str, service: ModelService | None, *, pushes: bool) -> Handlers:
        """Returns the handlers of the frames of this class at this point."""
        name = name_of(kind)
        before: Handler | None = None
        if name == _ASKED:
            if service is not None and not pushes:
                before = self._asking(service, self._taking(kind, name, at, service))
            return self._comparing(then=before), None
        if name is None:
            if at == ASSISTANT and not pushes:
                before = self._counting(kind.__name__)
        elif self._is_taken(at, name, pushes=pushes):
            # A frame that an LLM service processes is not from its model.
            before = self._taking(kind, name, at, service if pushes else None)
            if name in _STREAMED and self._is_taken_once(name):
                before = self._appending(at, before)
        writes = not pushes and at != LLM and _WRITES_NOTHING.isdisjoint(one.__name__ for one in kind.__mro__)
        return before, self._comparing() if writes else None

    def _is_taken(self, at: str, name: str, *, pushes: bool) -> bool:
        if name == _SETTINGS and self.is_answered_here:
            # Published with the next request instead.
            return False
        if at == LLM:
            return name in _FROM_THE_MODEL or (pushes and self.speaks and name in _ANSWER_TEXT)
        if at == OUTPUT:
            return name in _SPEECH
        if at == USER and name in _UNLESS_MUTED:
            return pushes
        if name in _ANSWER or name in _ANSWER_TEXT or name == _WORDS:
            return at == ASSISTANT and not pushes
        return True

    def _is_taken_once(self, name: str) -> bool:
        """Returns whether these frames are captured at one point only."""
        return sum(self._is_taken(at, name, pushes=pushes) for at, pushes in self._places) == 1

    def _asking(self, service: ModelService, then: Handler) -> Handler:
        """Returns the handler of the frame that requests an answer from an LLM service. The frame is captured when it
        reaches the service, because aggregators also push it to announce changes."""

        def ask(frame: Any) -> None:
            try:
                # A speculative request uses a copy of a context.
                if not getattr(frame, "speculation", False):
                    service.is_ours = self.context is None or frame.context is self.context
                if not service.is_ours:
                    self._warn_of_other_context(frame.context, service)
                elif not self.is_answered_here:
                    self._note_settings(service)
                    then(frame)
            except Exception as error:
                self._note_failure(error)

        return ask

    def _warn_of_other_context(self, context: Any, service: ModelService) -> None:
        if not (self._has_warned or any(context is one for one in self.other_contexts)):
            self._has_warned = True
            logger.warning(
                "%s was asked to answer a context that no aggregator of its pipeline has: its output is not "
                "recorded until it answers the recorded context again.",
                service.processor,
            )

    def _note_settings(self, service: ModelService) -> None:
        """Add the settings that have changed since the last request: the application can change those of a service at
        any time, even without a frame. Removes the settings of a previous service."""
        processor = service.processor
        service.model = Model(service.provider, model_of(processor))
        self._answering, known = service, self._settings
        self._settings = dict.fromkeys(known) | given_settings(settings_of(processor))
        changed = {
            name: value for name, value in self._settings.items() if name not in known or known[name] != value
        }
        if changed:
            self.add({"type": _SETTINGS, "settings": changed})

    def _comparing(self, then: Handler | None = None) -> Handler:
        def compare(frame: Any) -> None:
            try:
                self.sync()
            except Exception as error:
                self._note_failure(error)
                return
            if then is not None:
                then(frame)

        return compare

    def _counting(self, name: str) -> Handler:
        def count_not_recorded(frame: Any) -> None:
            self.not_recorded[name] += 1

        return count_not_recorded

    def _taking(self, kind: type, name: str, at: str, service: ModelService | None) -> Handler:
        """Returns the handler that captures a frame at the first point that sees it. It is called for each token.

        The output of an LLM service that answers another context is not captured there. Its start and text, and those
        of answers that are not spoken, are captured at the aggregator if they reach it."""
        place = GENERATED if at == LLM and name == TOKENS else at
        is_translated_later = name not in _TRANSLATED_AT_ONCE and kind.__name__ != _INTERRUPTION
        taken_at = service or ModelService()
        is_text_of_model = service is not None and name in _ANSWER_TEXT
        is_other_of_model = service is not None and not is_text_of_model
        append = self._append

        def take(frame: Any) -> None:
            try:
                if is_text_of_model and (frame.skip_tts or not taken_at.is_ours):
                    return
                # A broadcast is two frames, one in each direction, that refer to each other. They count as one.
                number, sibling = frame.id, frame.broadcast_sibling_id
                if sibling is not None and sibling < number:
                    number = sibling
                seen = self._seen
                if number in seen or number in self._seen_before:
                    return
                seen.add(number)
                if len(seen) >= _MAX_SEEN:
                    self._seen_before, self._seen = seen, set()
                if is_other_of_model and not taken_at.is_ours:
                    return
                if is_translated_later and not frame.metadata:
                    append(place, frame, taken_at.model)
                else:
                    self._take(place, frame, name, taken_at.model)
            except Exception as error:
                self._note_failure(error)

        return take

    def _appending(self, at: str, otherwise: Handler) -> Handler:
        """Returns the handler of streamed text that is captured at one point only, so it needs no check for duplicates.
        Nearly all frames of an answer are such text, so the handler does as little as possible: in a dense stream only
        every fiftieth frame gets a number and a time."""
        items, append, next_sequence = self.items, self.items.append, self.items.next_sequence

        def note(frame: Any) -> None:
            try:
                queued = len(items)
                if frame.metadata or queued > MAX_CAPTURED:
                    otherwise(frame)
                elif queued > BACKLOG and queued % MAX_JOINED:
                    append(frame)
                else:
                    append((next_sequence(), time_ns(), at, frame, None))
            except Exception as error:
                self._note_failure(error)

        return note

    def _take(self, at: str, frame: Any, name: str, model: Model | None) -> None:
        if ON_THE_LOG in frame.metadata:
            if type(frame).__name__ in (_START, _END):
                # Words spoken from now on belong to that answer.
                self._append(ON_THE_LOG, frame, model)
        elif name == _SETTINGS and self._is_for_another(getattr(frame, "service", None)):
            # The settings of a service are added when it answers.
            pass
        elif name in _TRANSLATED_AT_ONCE:
            for fields in translate(frame, at, time_ns(), TranslationState(), model):
                self.add(fields)
                if fields["type"] == _SETTINGS:
                    self._settings |= fields["settings"]
        else:
            if type(frame).__name__ == _INTERRUPTION:
                self.interruptions += 1
            self._append(at, frame, model)

    def _is_for_another(self, target: Any) -> bool:
        return target is not None and (self._answering is None or self._answering.processor is not target)

    def _append(self, at: str, captured: Any, model: Model | None = None) -> int | None:
        if len(self.items) > MAX_CAPTURED and at != CHANGES:
            self.lost += 1
            return None
        sequence = self.items.next_sequence()
        self.items.append((sequence, time_ns(), at, captured, model))
        return sequence

"""Capture: what the handlers of Pipecat's processor events do, in Pipecat's own event loop.

A handler appends to a deque, and compares the context with its copy where something may have written into it. It
awaits nothing and raises nothing; what it could not take is counted.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from typing import Any

from frameledger_services.pipecat.captured_frame import GENERATED, Fields, ModelService, TranslationState
from frameledger_services.pipecat.mirror import Mirror
from frameledger_services.pipecat.translate import name_of, translate
from frameledger_services.pipecat.values import to_json, tools_to_json

CHANGES, FIELDS, ON_THE_LOG = "changes", "fields", "frameledger.on_the_log"
"""Instead of a place: what was captured is changes of the messages, frames that are ready, or one that the log has.
Such a frame came from there, and has this name in its metadata."""

Item = tuple[int, int, str, Any, ModelService | None]
"""Sequence, nanoseconds since 1970, place, what was captured, and the model's service if it was there."""

USER, ASSISTANT, LLM, OUTPUT = "user", "assistant", "llm", "output"

MOST_CAPTURED = 50_000
"""Items that wait for the thread. It takes them every 20 ms: so many wait only if it does not run any more."""

# Where frames are taken, if not at whichever of our processors sees them first.
_ANSWER = {"LLMFullResponseEndFrame", "LLMThoughtStartFrame", "LLMThoughtTextFrame", "LLMThoughtEndFrame"}
_ANSWER |= {"LLMAssistantPushAggregationFrame", "FunctionCallResultFrame", "FunctionCallCancelFrame"}
_WORDS, _TOKENS = "TextFrame", "LLMTextFrame"
_START, _END, _ASKED = "LLMFullResponseStartFrame", "LLMFullResponseEndFrame", "LLMContextFrame"
_INTERRUPTION, _SETTINGS = "InterruptionFrame", "LLMUpdateSettingsFrame"
_FROM_THE_MODEL = {"MetricsFrame", "ErrorFrame", "FunctionCallsStartedFrame", "FunctionCallInProgressFrame"}
_VOICE = {"BotStartedSpeakingFrame", "BotStoppedSpeakingFrame", _WORDS}
# Objects that an application may change once it has handed them over: told at once, and not in the thread.
_NOW = _FROM_THE_MODEL | {"FunctionCallResultFrame", "LLMThoughtEndFrame", "LLMUpdateSettingsFrame"}
_NOW -= {"MetricsFrame"}
# What writes nothing into a context when it is handled, and comes often.
_WRITES_NOTHING = {
    _WORDS,
    _TOKENS,
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
_TAKE, _TAKE_NOW, _GENERATED, _SYNC_BEFORE, _SYNC_AFTER, _UNTOLD = 1, 2, 4, 8, 16, 32
_REMEMBERED = 4096


class Capture:
    """What is captured of one pipeline, until the thread takes it from `items`."""

    def __init__(self, note_failure: Callable[[BaseException], None]) -> None:
        self.items: deque[Item] = deque()
        self.untold: Counter[str] = Counter()
        self.lost = 0
        self.speaks = False
        self.is_answered_here = False
        """A service of ours asks for the answers, and the workers that give them tell of them."""

        self.interruptions = 0
        """How many were captured."""

        self._note_failure = note_failure
        self._sequence = count()
        self.context: Any = None
        self._mirror = Mirror()
        self._tools: list[Any] = [[], None]
        self._choice: Any = None
        self._live_tools: Any = None
        self._live_choice: Any = None
        self._seen: set[int] = set()
        self._seen_before: set[int] = set()

    def follow(
        self, context: Any, mirror: Mirror | None = None, tools: Any = None, tool_choice: Any = None
    ) -> None:
        """Compare this context from now on with this copy; `tools` and `tool_choice`, as JSON, are on the log."""
        self.context, self._mirror = context, mirror or Mirror()
        self._tools, self._choice = [tools or [], None], tool_choice

    def retell(self) -> None:
        """Say all messages at the next sync point."""
        self._mirror = Mirror()

    def add(self, fields: Fields) -> int | None:
        """A frame that is ready. Returns its sequence; None if there was no room for it."""
        return self._append(FIELDS, [fields])

    def handlers(
        self, at: str, *, pushes: bool, service: ModelService | None = None
    ) -> tuple[Callable[..., None], Callable[..., None]]:
        """Two handlers for one processor: before it handles a frame, or pushes one, and after."""
        plans: dict[type, int] = {}

        def before(processor: Any, frame: Any) -> None:
            try:
                kind = type(frame)
                plan = plans.get(kind)
                if plan is None:
                    plan = plans[kind] = self._plan(at, kind, pushes=pushes)
                if plan & _SYNC_BEFORE:
                    self.sync()
                if plan & _TAKE:
                    self._take(GENERATED if plan & _GENERATED else at, frame, plan, service)
                elif plan & _UNTOLD:
                    self.untold[kind.__name__] += 1
            except Exception as error:
                self._note_failure(error)

        def after(processor: Any, frame: Any) -> None:
            try:
                if plans.get(type(frame), 0) & _SYNC_AFTER:
                    self.sync()
            except Exception as error:
                self._note_failure(error)

        return before, after

    def sync(self) -> None:
        """Compare the context with its copy, and tell the difference."""
        context = self.context
        if context is None:
            return
        if len(self.items) > MOST_CAPTURED:
            self.retell()
            return
        try:
            if found := self._mirror.changes(context.messages):
                self._append(CHANGES, found)
        except Exception:
            self.retell()
            raise
        if context.tools is not self._live_tools or context.tool_choice is not self._live_choice:
            self._sync_terms(context.tools, context.tool_choice)

    def _sync_terms(self, tools: Any, choice: Any) -> None:
        self._live_tools, self._live_choice = tools, choice
        shown, custom = tools_to_json(tools)
        if [shown, custom] != self._tools:
            self._tools = [shown, custom]
            extra = {} if custom is None else {"custom_tools": custom}
            self.add({"type": "LLMSetToolsFrame", "tools": shown, **extra})
        said = choice if isinstance(choice, str | dict) else None
        if said is not None and said != self._choice:
            self._choice = said
            self.add({"type": "LLMSetToolChoiceFrame", "tool_choice": to_json(said)})

    def _plan(self, at: str, kind: type, *, pushes: bool) -> int:
        """What is to be done with frames of this class here: decided once, since it is done for every token."""
        name = name_of(kind)
        plan = 0
        if name == _ASKED:
            plan |= _SYNC_BEFORE
        elif not pushes and at != LLM and _WRITES_NOTHING.isdisjoint(one.__name__ for one in kind.__mro__):
            plan |= _SYNC_AFTER
        if name is None:
            plan |= _UNTOLD if at == ASSISTANT and not pushes else 0
        elif self._is_taken(at, name, pushes=pushes):
            plan |= _TAKE | (_TAKE_NOW if name in _NOW else 0)
            plan |= _GENERATED if at == LLM and name == _TOKENS else 0
        return plan

    def _is_taken(self, at: str, name: str, *, pushes: bool) -> bool:
        if name == _ASKED:
            # Where a model is asked. The aggregators push it also to tell that there is news.
            return at == LLM and not pushes and not self.is_answered_here
        if name == _SETTINGS and self.is_answered_here:
            # Said with the next question: what its model is to know of them.
            return False
        if at == LLM:
            return pushes and (name in _FROM_THE_MODEL or (self.speaks and name in (_START, _TOKENS)))
        if at == OUTPUT:
            return name in _VOICE
        if name == _START or name in _ANSWER or name in (_TOKENS, _WORDS):
            return at == ASSISTANT and not pushes
        return True

    def _take(self, at: str, frame: Any, plan: int, service: ModelService | None) -> None:
        # A broadcast is two frames that name each other, one each way: they are one.
        sibling, number = frame.broadcast_sibling_id, frame.id
        if sibling is not None and sibling < number:
            number = sibling
        seen = self._seen
        if number in seen or number in self._seen_before:
            return
        seen.add(number)
        if len(seen) >= _REMEMBERED:
            self._seen_before, self._seen = seen, set()
        name = type(frame).__name__
        if ON_THE_LOG in frame.metadata:
            if name in (_START, _END):
                # Words that are heard from now on belong to that answer.
                self._append(ON_THE_LOG, frame, service)
            return
        self.interruptions += name == _INTERRUPTION
        if plan & _TAKE_NOW:
            for fields in translate(frame, at, time.time_ns(), TranslationState(), service):
                self.add(fields)
            return
        self._append(at, frame, service)

    def _append(self, at: str, captured: Any, service: ModelService | None = None) -> int | None:
        if len(self.items) > MOST_CAPTURED and at != CHANGES:
            self.lost += 1
            return None
        sequence = next(self._sequence)
        self.items.append((sequence, time.time_ns(), at, captured, service))
        return sequence

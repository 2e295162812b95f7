"""Frames as events of AG-UI: a fold without IO, one for each run of a client.

Events show the effect of frames on the conversation, so a frame that was not applied has none. Text streams before it
is stored, under the id that its message will have (`messages`). A call is shown when it is in progress, since the
conversation has it only then. If frames change messages in a way for which the protocol has no event (an attempt is
superseded, another client sends a message, the history is replaced), all messages are sent again: `is_stale` is true
once no text is open, and `snapshot` returns the event unless the client has just received the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    UnknownFrame,
)
from frameledger_services.gateway.ag_ui.client_copy import ClientCopy
from frameledger_services.gateway.ag_ui.messages import SHOWN_ROLES, shown
from frameledger_services.gateway.ag_ui.streamed_answers import StreamedAnswers
from frameledger_services.gateway.ag_ui.streamed_calls import StreamedCalls
from frameledger_services.gateway.ag_ui.streamed_message import Event
from frameledger_services.gateway.ag_ui.usage import RunUsage
from frameledger_services.store.client_calls import BegunCall, WaitingCall
from frameledger_services.store.shown_messages import ShownMessage, WrittenMessage

PROTOCOL_VERSION = "1.0"

QUIET = frozenset(
    (
        "LLMMessagesAppendFrame",
        "LLMMessagesUpdateFrame",
        "LLMMessageRewriteFrame",
        "LLMMirrorFrame",
        "LLMContextFrame",
        "LLMSetToolsFrame",
        "LLMRunFrame",
        "LLMUpdateSettingsFrame",
        "UserStartedSpeakingFrame",
        "UserStoppedSpeakingFrame",
        "TranscriptionFrame",
        "InterimTranscriptionFrame",
        "BotStartedSpeakingFrame",
        "BotStoppedSpeakingFrame",
    )
)
"""Types of frames without events. The messages need not be sent again before them."""


class Translation:
    """One run of a client: `started`, then `take` for each frame in order, then `finished` or `failed`."""

    def __init__(
        self, thread_id: str, run_id: str, parent_run_id: str | None = None, *, is_mirror: bool = False
    ) -> None:
        """With `is_mirror` the streamed texts and calls differ from the stored ones (RA5.mirror)."""
        self._of_run = {"threadId": thread_id, "runId": run_id}
        self._parent_run_id = parent_run_id
        # The streamed text of a mirror differs from the stored one.
        self._copy = ClientCopy(text_differs=is_mirror)
        self._answers = StreamedAnswers(self._copy)
        self._calls = StreamedCalls(self._copy)
        self._last_snapshot: list[Event] | None = None
        """The messages of the last snapshot; None once other events have followed it."""

        self._usage = RunUsage()
        self._cause: tuple[str, str] | None = None
        """The latest error of our open run."""

        self._error: tuple[str, str] | None = None
        """Why that run failed."""

        self._was_stopped = False

    def started(self, messages: Sequence[ShownMessage]) -> list[Event]:
        """Returns the events that open the run. `messages` are those of the conversation before the run's first
        frame."""
        started: Event = {"type": "RUN_STARTED", **self._of_run, "protocolVersion": PROTOCOL_VERSION}
        if self._parent_run_id is not None:
            started["parentRunId"] = self._parent_run_id
        return [started, *self.snapshot(messages)]

    def snapshot(self, messages: Sequence[ShownMessage]) -> list[Event]:
        """Returns the event with all messages, or none if the client has just received the same. `messages` are those
        of the conversation after the last frame that was taken."""
        self._copy.is_stale = False
        before = self._last_snapshot
        self._last_snapshot, self._calls.names = shown(messages)
        return (
            []
            if self._last_snapshot == before
            else [{"type": "MESSAGES_SNAPSHOT", "messages": self._last_snapshot}]
        )

    @property
    def is_stale(self) -> bool:
        """Whether the client's messages differ from those of the conversation, and can be replaced now."""
        return self._copy.is_stale and not self._answers.has_open_text

    def take(
        self,
        version: int,
        frame: AnyFrame,
        outcome: str = "applied",
        reason: str | None = None,
        begun_calls: Sequence[BegunCall] = (),
        written: Sequence[WrittenMessage] = (),
    ) -> list[Event]:
        """Returns the events of a stored frame. `begun_calls` has the calls of the client's functions that began with
        it, and `written` the messages that were written with it.

        The text of an answer ends for the client when it is written, whichever frame ended it, such as another input
        that interrupts it (R7.4). Written messages without events of their own were said by others: with this frame, or
        with an earlier one whose messages were held until the answer was over (R7.5).
        """
        events: list[Event] = []
        if any(self._answers.may_have_said(message) for message in written):
            events += self._answers.close_text()
        events += self._of_frame(version, frame, outcome, reason)
        for call in begun_calls:
            events += self._calls.begin(call.tool_call_id, call.function_name, call.arguments)
        if events:
            self._last_snapshot = None
        self._copy.is_stale = self._copy.is_stale or _of_events(events) != _of_messages(written)
        return events

    def _of_frame(self, version: int, frame: AnyFrame, outcome: str, reason: str | None) -> Iterable[Event]:
        if isinstance(frame, UnknownFrame):
            return []
        if outcome == "applied":
            return self._applied(version, frame)
        if reason == "place_replaced" and isinstance(
            frame, FunctionCallResultFrame | FunctionCallCancelFrame
        ):
            # It is settled in any case.
            self._calls.names.settle(frame.tool_call_id)
        return []

    def finished(self, waiting: Sequence[WaitingCall] = ()) -> list[Event]:
        """Returns the events that close the run, when nothing of it is open except calls that wait for a person."""
        events = list(self._answers.close())
        if self._error is not None:
            return [*events, *self.failed(*self._error)]
        outcome: Event = {"type": "success"}
        if self._was_stopped:
            outcome = {"type": "cancelled"}
        elif waiting:
            outcome = {"type": "interrupt", "interrupts": [self._calls.interrupt(call) for call in waiting]}
        return [
            *events,
            {"type": "RUN_FINISHED", **self._of_run, "outcome": outcome, **self._usage.field()},
        ]

    def failed(self, message: str, code: str) -> list[Event]:
        """Returns the event of a failed run, which also closes whatever is open."""
        return [{"type": "RUN_ERROR", "message": message, "code": code, **self._usage.field()}]

    def _applied(self, version: int, frame: AnyFrame) -> Iterator[Event]:
        assert not isinstance(frame, UnknownFrame)
        match frame.type:
            case "LLMFullResponseStartFrame" | "VisionFullResponseStartFrame":
                yield from self._response_started(version, frame)
            case "LLMTextFrame" | "VisionTextFrame":
                yield from self._answers.say(frame, carries_spaces=True)
            case "TextFrame":
                yield from self._answers.say(frame, carries_spaces=frame.includes_inter_frame_spaces)
            case "LLMAssistantPushAggregationFrame":
                yield from self._answers.close_text()
            case "LLMFullResponseEndFrame" | "VisionFullResponseEndFrame":
                yield from self._response_ended(frame)
            case "LLMThoughtStartFrame":
                yield from self._answers.start_thought(version)
            case "LLMThoughtTextFrame":
                yield from self._answers.think(frame)
            case "LLMThoughtEndFrame":
                yield from self._answers.close_thought()
            case "ErrorFrame":
                yield from self._erred(frame)
            case "InterruptionFrame":
                yield from self._interrupted(frame)
            case "FunctionCallInProgressFrame":
                yield from self._calls.begin_at_worker(frame)
            case "FunctionCallResultFrame":
                yield from self._calls.settle(frame)
            case "FunctionCallCancelFrame":
                yield from self._calls.cancel(frame)
            case "LLMMessagesUpdateFrame" | "LLMMessageRewriteFrame" | "LLMMirrorFrame" | "LLMContextFrame":
                self._copy.is_stale = self._copy.text_differs = True
            case "LLMContextEraseFrame":
                yield from self._answers.close()
                self._copy.is_stale = self._copy.text_differs = True
            case "EndFrame" | "CancelFrame":
                yield from self._answers.close()
                self._copy.is_stale = self._was_stopped = True
            case (
                "LLMMessagesAppendFrame"
                | "LLMSetToolsFrame"
                | "UserStartedSpeakingFrame"
                | "UserStoppedSpeakingFrame"
                | "TranscriptionFrame"
                | "LLMRunFrame"
                | "LLMSetToolChoiceFrame"
                | "LLMUpdateSettingsFrame"
                | "LLMEnablePromptCachingFrame"
                | "LLMConfigureOutputFrame"
                | "LLMSetLimitsFrame"
                | "LLMContextAssistantTimestampFrame"
                | "FunctionCallsStartedFrame"
                | "InterimTranscriptionFrame"
                | "TranslationFrame"
                | "BotStartedSpeakingFrame"
                | "BotStoppedSpeakingFrame"
                | "StartFrame"
                | "LLMServiceMetadataFrame"
            ):
                return
            case _:
                assert_never(frame.type)

    def _response_started(self, version: int, frame: LLMFullResponseStartFrame) -> Iterator[Event]:
        yield from self._answers.start(version, frame)
        self._cause, self._error, self._was_stopped = None, None, False
        self._usage.began(frame)

    def _response_ended(self, frame: LLMFullResponseEndFrame) -> Iterator[Event]:
        yield from self._answers.close()
        self._usage.ended(frame)
        if frame.finish_reason == "error":
            self._error = self._cause or ("The model's answer broke off.", "run_failed")

    def _erred(self, frame: ErrorFrame) -> Iterator[Event]:
        if frame.tool_call_id is not None:
            return
        self._cause = (frame.message or "The run failed.", frame.code or "run_failed")
        if not frame.fatal:
            return
        if self._answers.is_open_for(frame.run_id):
            yield from self._answers.close()
        self._error = self._cause

    def _interrupted(self, frame: InterruptionFrame) -> Iterator[Event]:
        yield from self._answers.close()
        self._was_stopped = True
        self._copy.is_stale = self._copy.is_stale or frame.heard_text is not None


def _of_events(events: Iterable[Event]) -> Counter[str]:
    """Returns the number of messages that these events add to those of the client, by kind."""
    counts = Counter(event["type"] for event in events)
    texts, calls = counts["TEXT_MESSAGE_END"], counts["TOOL_CALL_START"]
    return +Counter({"assistant": texts, "calls": calls, "tool": calls})


def _of_messages(written: Iterable[WrittenMessage]) -> Counter[str]:
    """Returns the number of these messages that a client is shown, by kind."""
    return Counter("calls" if one.makes_calls else one.role for one in written if one.role in SHOWN_ROLES)

"""Frames as events of AG-UI: a fold without IO, one for each run of a client.

It shows what frames do to the conversation, so it goes by their outcomes: a frame that was not applied is no event.
Text streams before it is stored, under the id that its message will have (`messages`), and a call is shown when it is
in progress, since that is when the conversation has it. Where frames change messages in a way that the protocol has
no event for (an attempt is taken back, somebody else says something, the history is replaced), the messages have to be
stated again: `is_stale` says so, once no text is open, and `restated` makes the event if it says anything new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, assert_never

from frameledger.evolve import call_messages
from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMThoughtTextFrame,
    TextFrame,
    UnknownFrame,
)
from frameledger.ids import ToolCallId
from frameledger_services.gateway.ag_ui import messages as shown
from frameledger_services.gateway.ag_ui.interrupt_ids import interrupt_id
from frameledger_services.gateway.ag_ui.streamed_message import OpenText, OpenThought
from frameledger_services.gateway.ag_ui.usage import RunUsage
from frameledger_services.store.shown_messages import ShownMessage

PROTOCOL_VERSION = "1.0"

Event = dict[str, Any]
"""An event as its JSON object."""

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
"""Types of frames that have no event: before them the messages need not be stated."""


class WaitingCall(Protocol):
    """A call that waits for a person."""

    @property
    def tool_call_id(self) -> str: ...
    @property
    def requested_version(self) -> int: ...
    @property
    def waiting_for(self) -> str | None: ...
    @property
    def waiting_deadline(self) -> Any: ...


class BegunCall(Protocol):
    """A call that began with a frame that is not its own: its client answers it (RA5.client)."""

    @property
    def tool_call_id(self) -> str: ...
    @property
    def function_name(self) -> str: ...
    @property
    def arguments(self) -> Any: ...


class Translation:
    """One run of a client: `started`, then `take` for each frame in order, then `finished` or `failed`."""

    def __init__(
        self, thread_id: str, run_id: str, parent_run_id: str | None = None, *, is_mirror: bool = False
    ) -> None:
        """`is_mirror` says that what is said and called is not what is stored (RA5.mirror)."""
        self._of_run = {"threadId": thread_id, "runId": run_id}
        self._parent_run_id = parent_run_id
        self._text: OpenText | None = None
        self._thought: OpenThought | None = None
        self._answers: str | None = None
        """The run of the response that is open, or was last. None before one has started: what an earlier one goes on
        with is not shown before it is stored."""

        self._is_unnamed = False
        self._texts: Counter[str] = Counter()
        """How many messages of text each run has that count."""

        self._calls = shown.CallNames()
        self._stale = False
        self._stated: list[Event] | None = None
        """The messages that were stated last, as long as nothing was told since."""

        self._is_told_anew = is_mirror
        """What streams is not what is stored, or under another id: the messages are stated after it."""

        self._usage = RunUsage()
        self._cause: tuple[str, str] | None = None
        """What went wrong last in the run of ours that is open."""

        self._error: tuple[str, str] | None = None
        """Why that run failed."""

        self._was_stopped = False

    def started(self, messages: Sequence[ShownMessage]) -> list[Event]:
        """Returns the events that open the run; `messages` are those of the conversation before its first frame."""
        started: Event = {"type": "RUN_STARTED", **self._of_run, "protocolVersion": PROTOCOL_VERSION}
        if self._parent_run_id is not None:
            started["parentRunId"] = self._parent_run_id
        return [started, *self.restated(messages)]

    def restated(self, messages: Sequence[ShownMessage]) -> list[Event]:
        """Returns the event that states the messages, none if the client has just been told the same; these are the
        conversation's after the last frame that was taken."""
        self._stale = False
        before = self._stated
        self._stated, self._calls = shown.shown(messages)
        return [] if self._stated == before else [{"type": "MESSAGES_SNAPSHOT", "messages": self._stated}]

    @property
    def is_stale(self) -> bool:
        """Whether the client has other messages than the conversation, and can be told the right ones now."""
        return self._stale and (self._text is None or not self._text.streamed.is_begun)

    def take(
        self,
        version: int,
        frame: AnyFrame,
        outcome: str = "applied",
        reason: str | None = None,
        begun: Sequence[BegunCall] = (),
    ) -> list[Event]:
        """Returns the events of a stored frame; `begun` are the calls of the client's functions that began with it."""
        events = list(self._of_frame(version, frame, outcome, reason))
        for call in begun:
            events += self._call_began(call.tool_call_id, call.function_name, call.arguments)
        if events:
            self._stated = None
        return events

    def _of_frame(self, version: int, frame: AnyFrame, outcome: str, reason: str | None) -> Iterable[Event]:
        if isinstance(frame, UnknownFrame):
            return []
        if outcome == "applied":
            return self._applied(version, frame)
        if reason == "place_replaced" and isinstance(
            frame, FunctionCallResultFrame | FunctionCallCancelFrame
        ):
            # It is settled all the same.
            self._calls.settle(frame.tool_call_id)
        return []

    def finished(self, waiting: Sequence[WaitingCall] = ()) -> list[Event]:
        """Returns the events that close the run, when nothing of it is open but calls that wait for a person."""
        events = [*self._close_text(), *self._close_thought()]
        if self._error is not None:
            return [*events, *self.failed(*self._error)]
        outcome: Event = {"type": "success"}
        if self._was_stopped:
            outcome = {"type": "cancelled"}
        elif waiting:
            outcome = {"type": "interrupt", "interrupts": [self._interrupt(call) for call in waiting]}
        return [
            *events,
            {"type": "RUN_FINISHED", **self._of_run, "outcome": outcome, **self._usage.field()},
        ]

    def failed(self, message: str, code: str) -> list[Event]:
        """Returns the event of a run that failed; it closes what is open, too."""
        return [{"type": "RUN_ERROR", "message": message, "code": code, **self._usage.field()}]

    def _applied(self, version: int, frame: AnyFrame) -> Iterator[Event]:
        assert not isinstance(frame, UnknownFrame)
        match frame.type:
            case "LLMFullResponseStartFrame" | "VisionFullResponseStartFrame":
                yield from self._response_started(version, frame)
            case "LLMTextFrame" | "VisionTextFrame":
                yield from self._said(frame, carries_spaces=True)
            case "TextFrame":
                yield from self._said(frame, carries_spaces=frame.includes_inter_frame_spaces)
            case "LLMAssistantPushAggregationFrame":
                yield from self._close_text()
            case "LLMFullResponseEndFrame" | "VisionFullResponseEndFrame":
                yield from self._response_ended(frame)
            case "LLMThoughtStartFrame":
                yield from self._close_thought()
                self._thought = OpenThought(f"thought-{version}")
                yield {"type": "REASONING_START", "messageId": self._thought.message_id}
            case "LLMThoughtTextFrame":
                yield from self._thought_said(frame)
            case "LLMThoughtEndFrame":
                yield from self._close_thought()
            case "ErrorFrame":
                yield from self._erred(frame)
            case "InterruptionFrame":
                yield from self._interrupted(frame)
            case "FunctionCallInProgressFrame":
                yield from self._call_of_worker_began(frame)
            case "FunctionCallResultFrame":
                yield from self._call_has_result(frame)
            case "FunctionCallCancelFrame":
                yield from self._call_cancelled(frame)
            case (
                "LLMMessagesUpdateFrame"
                | "LLMMessageRewriteFrame"
                | "LLMMirrorFrame"
                | "LLMContextFrame"
                | "LLMContextEraseFrame"
            ):
                self._stale = self._is_told_anew = True
            case "EndFrame" | "CancelFrame":
                yield from self._close_text()
                yield from self._close_thought()
                self._stale = self._was_stopped = True
            case (
                "LLMMessagesAppendFrame"
                | "LLMSetToolsFrame"
                | "UserStartedSpeakingFrame"
                | "UserStoppedSpeakingFrame"
                | "TranscriptionFrame"
            ):
                # These may write a message that somebody else said.
                self._stale = True
            case (
                "LLMRunFrame"
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

    # What the model says

    def _response_started(self, version: int, frame: LLMFullResponseStartFrame) -> Iterator[Event]:
        yield from self._close_text()
        yield from self._close_thought()
        self._cause, self._error, self._was_stopped = None, None, False
        if frame.run_id is None:
            # It may answer a run without saying so: what it says is stored under an id that is not known yet.
            self._answers, self._is_unnamed = f"said-{version}", True
        else:
            # An attempt before, and one that did not say that it is of this run, are taken back.
            self._stale = self._stale or frame.run_id in self._texts or self._is_unnamed
            self._answers, self._is_unnamed = frame.run_id, False
            self._texts[frame.run_id] = 0
        self._usage.began(frame)

    def _said(self, frame: TextFrame, *, carries_spaces: bool) -> Iterator[Event]:
        if not frame.append_to_context or self._answers is None:
            return
        if self._text is None:
            self._text = OpenText(shown.nth(self._answers, self._texts[self._answers] + 1))
        yield from self._text.events(self._text.streamed.add(frame.text, carries_spaces))

    def _close_text(self) -> Iterator[Event]:
        text, self._text = self._text, None
        self._stale = self._stale or self._answers is None or self._is_unnamed
        if text is None:
            return
        yield from text.events(text.streamed.end())
        if not text.streamed.is_begun:
            return
        yield {"type": "TEXT_MESSAGE_END", "messageId": text.message_id}
        assert self._answers is not None
        self._texts[self._answers] += 1
        self._stale = self._stale or self._is_told_anew

    def _response_ended(self, frame: LLMFullResponseEndFrame) -> Iterator[Event]:
        yield from self._close_text()
        yield from self._close_thought()
        self._usage.ended(frame)
        if frame.finish_reason == "error":
            self._error = self._cause or ("The model's answer broke off.", "run_failed")

    def _thought_said(self, frame: LLMThoughtTextFrame) -> Iterator[Event]:
        if self._thought is not None:
            yield from self._thought.events(self._thought.streamed.add(frame.text, carries_spaces=True))

    def _close_thought(self) -> Iterator[Event]:
        thought, self._thought = self._thought, None
        if thought is None:
            return
        yield from thought.events(thought.streamed.end())
        if thought.streamed.is_begun:
            yield {"type": "REASONING_MESSAGE_END", "messageId": thought.message_id}
        yield {"type": "REASONING_END", "messageId": thought.message_id}

    def _erred(self, frame: ErrorFrame) -> Iterator[Event]:
        if frame.tool_call_id is not None:
            return
        self._cause = (frame.message or "The run failed.", frame.code or "run_failed")
        if not frame.fatal:
            return
        if frame.run_id is None or self._answers in (None, frame.run_id) or self._is_unnamed:
            yield from self._close_text()
            yield from self._close_thought()
        self._error = self._cause

    def _interrupted(self, frame: InterruptionFrame) -> Iterator[Event]:
        yield from self._close_text()
        yield from self._close_thought()
        self._was_stopped = True
        self._stale = self._stale or frame.heard_text is not None

    # What becomes of calls

    def _call_of_worker_began(self, frame: FunctionCallInProgressFrame) -> Iterator[Event]:
        if self._calls.is_open(frame.tool_call_id):
            return
        if frame.waiting is not None or (frame.call_attempt or 1) > 1:
            # It may be open since before the messages that the client has.
            self._stale = True
            return
        synchronous = frame.cancel_on_interruption
        yield from self._call_began(frame.tool_call_id, frame.function_name, frame.arguments, synchronous)

    def _call_began(
        self, tool_call_id: str, function_name: str, arguments: Any, synchronous: bool = True
    ) -> Iterator[Event]:
        if self._is_told_anew:
            self._stale = True
            return
        name = self._calls.made(tool_call_id)
        self._calls.open(tool_call_id, synchronous)
        message = call_messages.call(ToolCallId(name), function_name, arguments)
        [call] = message["tool_calls"]
        yield {
            "type": "TOOL_CALL_START",
            "toolCallId": name,
            "toolCallName": function_name,
            "parentMessageId": shown.call_message_id(name),
        }
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": call["function"]["arguments"]}
        yield {"type": "TOOL_CALL_END", "toolCallId": name}
        if not synchronous:
            started = call_messages.started(ToolCallId(tool_call_id), synchronous=False)
            yield self._result(name, started["content"])

    def _call_has_result(self, frame: FunctionCallResultFrame) -> Iterator[Event]:
        name = self._calls.synchronous_name(frame.tool_call_id)
        if frame.properties is None or frame.properties.is_final:
            self._calls.settle(frame.tool_call_id)
        if name is None or frame.settled_as == "resolved":
            # What a call in the background, or a person about an ambiguous one, says is a message of its own.
            self._stale = True
            return
        message = call_messages.result(ToolCallId(frame.tool_call_id), frame.result)
        yield self._result(name, message["content"])
        self._stale = self._stale or self._is_told_anew

    def _call_cancelled(self, frame: FunctionCallCancelFrame) -> Iterator[Event]:
        name = self._calls.synchronous_name(frame.tool_call_id)
        self._calls.settle(frame.tool_call_id)
        if name is None:
            self._stale = True
            return
        yield self._result(name, call_messages.cancelled(ToolCallId(frame.tool_call_id))["content"])
        self._stale = self._stale or self._is_told_anew

    def _result(self, name: str, content: str) -> Event:
        return {
            "type": "TOOL_CALL_RESULT",
            "messageId": shown.result_message_id(name),
            "toolCallId": name,
            "content": content,
            "role": "tool",
        }

    def _interrupt(self, call: WaitingCall) -> Event:
        """A call that waits, as what the run needs from outside."""
        waits: Event = {
            "id": interrupt_id(call.tool_call_id, call.requested_version),
            "reason": "tool_call",
            "toolCallId": self._calls.name(call.tool_call_id),
        }
        if call.waiting_for is not None:
            waits["message"] = call.waiting_for
        if call.waiting_deadline is not None:
            waits["expiresAt"] = call.waiting_deadline.isoformat()
        return waits

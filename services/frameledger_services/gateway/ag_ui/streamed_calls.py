"""The calls of a run as events: made, answered, cancelled, or waiting for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from frameledger.evolve import call_messages
from frameledger.frames import FunctionCallCancelFrame, FunctionCallInProgressFrame, FunctionCallResultFrame
from frameledger.ids import ToolCallId
from frameledger_services.gateway.ag_ui import messages as shown
from frameledger_services.gateway.ag_ui.client_copy import ClientCopy
from frameledger_services.gateway.ag_ui.interrupt_ids import interrupt_id
from frameledger_services.gateway.ag_ui.messages import CallNames
from frameledger_services.gateway.ag_ui.streamed_message import Event
from frameledger_services.store.client_calls import WaitingCall


class StreamedCalls:
    """The calls of one run of a client."""

    def __init__(self, copy: ClientCopy) -> None:
        self._copy = copy
        self.names = CallNames()
        """The names of the calls that the client knows."""

    def begin_at_worker(self, frame: FunctionCallInProgressFrame) -> Iterator[Event]:
        """Returns the events for a call that a worker has begun."""
        if self.names.is_open(frame.tool_call_id):
            return
        if frame.waiting is not None or (frame.call_attempt or 1) > 1:
            # It may have begun before the messages that the client received.
            self._copy.is_stale = True
            return
        synchronous = frame.cancel_on_interruption
        yield from self.begin(frame.tool_call_id, frame.function_name, frame.arguments, synchronous)

    def begin(
        self, tool_call_id: str, function_name: str, arguments: Any, synchronous: bool = True
    ) -> Iterator[Event]:
        """Returns the events for a call that has begun."""
        if self._copy.text_differs:
            self._copy.is_stale = True
            return
        name = self.names.note_call(tool_call_id)
        self.names.open(tool_call_id, synchronous)
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

    def settle(self, frame: FunctionCallResultFrame) -> Iterator[Event]:
        """Returns the events for the result of a call."""
        name = self.names.synchronous_name(frame.tool_call_id)
        if frame.properties is None or frame.properties.is_final:
            self.names.settle(frame.tool_call_id)
        if name is None or frame.settled_as == "resolved":
            # The report of a background call, and a person's decision on an ambiguous one, are messages of their own.
            self._copy.is_stale = True
            return
        message = call_messages.result(ToolCallId(frame.tool_call_id), frame.result)
        yield self._result(name, message["content"])
        self._copy.is_stale = self._copy.is_stale or self._copy.text_differs

    def cancel(self, frame: FunctionCallCancelFrame) -> Iterator[Event]:
        """Returns the events for a cancelled call."""
        name = self.names.synchronous_name(frame.tool_call_id)
        self.names.settle(frame.tool_call_id)
        if name is None:
            self._copy.is_stale = True
            return
        yield self._result(name, call_messages.cancelled(ToolCallId(frame.tool_call_id))["content"])
        self._copy.is_stale = self._copy.is_stale or self._copy.text_differs

    def _result(self, name: str, content: str) -> Event:
        return {
            "type": "TOOL_CALL_RESULT",
            "messageId": shown.result_message_id(name),
            "toolCallId": name,
            "content": content,
            "role": "tool",
        }

    def interrupt(self, call: WaitingCall) -> Event:
        """Returns a waiting call as an interrupt of the run."""
        waits: Event = {
            "id": interrupt_id(call.tool_call_id, call.requested_version),
            "reason": "tool_call",
            "toolCallId": self.names.name(call.tool_call_id),
        }
        if call.waiting_for is not None:
            waits["message"] = call.waiting_for
        if call.waiting_deadline is not None:
            waits["expiresAt"] = call.waiting_deadline.isoformat()
        return waits

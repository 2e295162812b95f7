"""Makes the frames of one request: the new part of its history, the client's functions, and settlements of calls.

The ids of the frames are derived from the run's id and their content, so a repeated request counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from frameledger.frames import (
    AnyFrame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    LLMSetToolsFrame,
)
from frameledger_services.gateway import client_tools, request_frames
from frameledger_services.gateway.ag_ui import answers
from frameledger_services.gateway.ag_ui.history import Plan
from frameledger_services.gateway.ag_ui.run_input import Message, Resume, RunInput
from frameledger_services.store.client_calls import WaitingCall
from frameledger_services.store.conversation_state import Thread
from frameledger_services.store.shown_messages import CLIENT

FRAME_IDS = UUID("0d7f5f0c-6f5e-5a3b-8a39-2f6f0e3a7c11")
"""The namespace of the ids of frames that clients' requests publish. It never changes."""


@dataclass(frozen=True, slots=True)
class RequestFrames:
    """Makes the frames of a request."""

    run_request: RunInput

    client_functions: Sequence[dict[str, Any]]
    """The client's own functions, in the stored format."""

    def tools(self, thread: Thread) -> AnyFrame | None:
        """Returns the frame that gives the conversation the client's functions. Returns None if it has them, or is new:
        the first frame of a new conversation has them."""
        tools = client_tools.merged(thread.tools, self.client_functions) if thread.version else None
        if tools is None:
            return None
        # One id for each attempt: at another version it is another frame.
        return LLMSetToolsFrame(id=self.frame_id(f"tools {thread.version}"), tools=tuple(tools))

    def cancellation(self, call: WaitingCall) -> AnyFrame:
        """Returns the frame that cancels a call that the client abandons."""
        return FunctionCallCancelFrame(
            **self._about_call(f"leave {call.tool_call_id} {call.requested_version}", call)
        )

    def resumed(self, entry: Resume, call: WaitingCall) -> AnyFrame:
        """Returns the answer to an interrupt."""
        about = self._about_answer(of_entry(entry), call, resume=entry.metadata)
        if entry.status == "cancelled":
            return FunctionCallCancelFrame(**about, run_llm=True)
        return FunctionCallResultFrame(**about, result=entry.payload)

    def result(self, message: Message, call: WaitingCall) -> AnyFrame:
        """Returns the frame with the result in a tool message."""
        about = self._about_answer(of_message(message), call, message_ids=[message.id])
        return FunctionCallResultFrame(**about, result=answers.result(message))

    def opening(self, thread: Thread, plan: Plan, what: str, served: Sequence[dict[str, Any]]) -> AnyFrame:
        """Returns the first frame of a new conversation, with the functions in `served` and the client's own."""
        messages, about = self._new(thread, plan, what)
        return request_frames.opening(messages, served, self.client_functions, about)

    def question(self, thread: Thread, plan: Plan, what: str) -> AnyFrame:
        """Returns the frame with the new messages, which asks for an answer."""
        messages, about = self._new(thread, plan, what)
        return request_frames.question(plan.kind, messages, about)

    def frame_id(self, what: str) -> str:
        """Returns the id of the frame of this run that is named `what`."""
        return str(uuid5(FRAME_IDS, f"{self.run_request.thread_id}\n{self.run_request.run_id}\n{what}"))

    def _new(self, thread: Thread, plan: Plan, what: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        messages, ids = self.with_context(thread, plan)
        return messages, {"id": self.frame_id(what), "metadata": self._metadata(message_ids=ids)}

    def with_context(self, thread: Thread, plan: Plan) -> tuple[list[dict[str, Any]], list[str | None]]:
        """Returns the new messages and their ids. The context that the application gives the model is inserted before
        the last of them, unless the conversation already has it."""
        entries = self.run_request.context or ()
        text = "\n".join(["The application says:", *(f"- {one.description}: {one.value}" for one in entries)])
        known = [*plan.messages, *(one.message for one in thread.messages if plan.kind == "append")]
        if not entries or any(one.get("content") == text for one in known):
            return plan.messages, plan.ids
        message = {"role": "developer", "content": text}
        place = max(0, len(plan.messages) - 1)
        if plan.messages and plan.messages[-1]["role"] == "tool":
            # Nothing may stand between a call and its result.
            place += 1
        return (
            [*plan.messages[:place], message, *plan.messages[place:]],
            [*plan.ids[:place], None, *plan.ids[place:]],
        )

    def _about_answer(self, what: str, call: WaitingCall, **also: Any) -> dict[str, Any]:
        return {**self._about_call(what, call), "metadata": self._metadata(**also)}

    def _about_call(self, what: str, call: WaitingCall) -> dict[str, Any]:
        return request_frames.settling(
            self.frame_id(what), call.function_name, call.tool_call_id, call.requested_version
        )

    def _metadata(self, **also: Any) -> dict[str, Any]:
        about = {
            "run_id": self.run_request.run_id,
            "parent_run_id": self.run_request.parent_run_id,
            "forwarded_props": self.run_request.forwarded_props or None,
            **also,
        }
        return {CLIENT: {name: one for name, one in about.items() if one is not None}}


def of_entry(entry: Resume) -> str:
    """Returns the name of an answer's frame (`frame_id`), which is the same for each repetition of the request."""
    return f"resume {entry.interrupt_id}"


def of_message(message: Message) -> str:
    """Returns the name of a result's frame (`frame_id`)."""
    return f"answer {message.tool_call_id}"

"""Makes the frames of one request: its question, the changes to the conversation before it, and settlements of calls.

The ids of the frames are derived from the request, so a repeated request counts once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

from frameledger.frames import (
    AnyFrame,
    FunctionCallCancelFrame,
    FunctionCallResultFrame,
    LLMSetToolsFrame,
    LLMUpdateSettingsFrame,
)
from frameledger_services.gateway import client_tools, request_frames
from frameledger_services.gateway.openai.history import Plan
from frameledger_services.gateway.openai.request import CompletionRequest
from frameledger_services.gateway.publishing import KEYS
from frameledger_services.store import newest_requests
from frameledger_services.store.client_calls import ClientCall, WaitingCall

MAX_QUESTIONS = 10
"""Maximum questions of an `Idempotency-Key`: it asks again if its answer was cut off, or others asked in between."""


@dataclass(frozen=True, slots=True)
class RequestFrames:
    """Makes the frames of a request."""

    context_id: str
    chat_request: CompletionRequest
    key: str | None
    """Its `Idempotency-Key`."""

    used: int
    """The number of stored questions of this key."""

    def opening(self, served: Sequence[dict[str, Any]]) -> AnyFrame:
        """Returns the first frame of a new conversation, whose model may call the functions in `served`."""
        asked = self.chat_request
        return request_frames.opening(
            asked.messages, served, asked.tools, self._marks(), settings=asked.changes({})
        )

    def terms(self, stored: Mapping[str, Any]) -> list[AnyFrame]:
        """Returns the frames that give the conversation the settings and functions of this request. `stored` is its
        context."""
        frames: list[AnyFrame] = []
        if changes := self.chat_request.changes(stored["settings"]):
            frames.append(LLMUpdateSettingsFrame(settings=changes))
        if (tools := client_tools.merged(stored["tools"], self.chat_request.tools)) is not None:
            frames.append(LLMSetToolsFrame(tools=tuple(tools)))
        return frames

    def question(self, plan: Plan) -> AnyFrame:
        """Returns the frame that asks for an answer to the new messages."""
        return request_frames.question(plan.kind, plan.messages, self._marks())

    def cancellation(self, call: WaitingCall) -> AnyFrame:
        """Returns the frame that cancels a call that the client abandons."""
        return FunctionCallCancelFrame(**self._about(call, "left"))

    def result(self, call: ClientCall, result: Any, *, is_question: bool, has_more: bool) -> AnyFrame:
        """Returns the result of a call. With `is_question` the result asks for the answer; with `has_more` a later
        frame does."""
        about = self._about(call, self.chat_request.sha256)
        marks = self._marks() if is_question else {**self._marks(), "id": about["id"]}
        return FunctionCallResultFrame(
            **{**about, **marks}, result=result, run_llm=False if has_more else None
        )

    def question_id(self, number: int) -> str:
        """Returns the id of this key's question number `number`, from 0."""
        return str(uuid5(KEYS, f"{self.context_id}\n{self.key}\nquestion\n{number}"))

    def _about(self, call: ClientCall | WaitingCall, what: str) -> dict[str, Any]:
        """Returns the fields of a frame about a call."""
        version = call.requested_version
        name = f"{self.context_id}\ncall\n{call.tool_call_id}\n{version}\n{what}"
        return request_frames.settling(str(uuid5(KEYS, name)), call.function_name, call.tool_call_id, version)

    def _marks(self) -> dict[str, Any]:
        marks: dict[str, Any] = {"metadata": {newest_requests.REQUEST: self.chat_request.noted()}}
        if self.key is not None:
            marks["id"] = self.question_id(min(self.used, MAX_QUESTIONS - 1))
        return marks

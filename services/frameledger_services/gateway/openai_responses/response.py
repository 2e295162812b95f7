"""A response of OpenAI's API, made from its conversation: the stored request, and the current state of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from frameledger.evolve import call_messages
from frameledger.ids import ToolCallId
from frameledger.tools import is_of_client
from frameledger_services.gateway.openai.failures import REFUSED
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.request_values import ANY_MODEL
from frameledger_services.gateway.openai_responses.request import INSTRUCTION
from frameledger_services.gateway.openai_responses.response_ids import CALL_PREFIX, MESSAGE_PREFIX, ResponseId
from frameledger_services.store.answered_requests import AnsweredRequest

Status = Literal["in_progress", "completed", "incomplete", "cancelled", "failed"]

CUT_OFF = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The reasons for which a response is incomplete, by the finish reason of its last run."""


class ResponseWriter:
    """Writes one response with the part of its answer that was read."""

    def __init__(self, stored_request: AnsweredRequest, following: Following) -> None:
        self.id = ResponseId(following.question.context_id, stored_request.version)
        self._stored_request = stored_request
        self._following = following

    @property
    def status(self) -> Status:
        """The status of the response, as named in OpenAI's API."""
        following = self._following
        answer = following.answer
        if answer.failure is not None:
            return "failed"
        if answer.was_interrupted:
            return "cancelled"
        if not following.is_over:
            return "in_progress"
        is_whole = not answer.is_open and (answer.has_begun or bool(following.calls))
        return "completed" if is_whole and answer.finish_reason not in CUT_OFF else "incomplete"

    def whole(self) -> bytes:
        """Returns the response as JSON."""
        return json.dumps(self.response(), separators=(",", ":"), default=list).encode()

    def response(self, status: Status | None = None) -> dict[str, Any]:
        """Returns the response. With `status` it is the initial response, with this status and without the answer, so
        that it is the same at each read."""
        request, settings = self._stored_request, self._stored_request.settings
        extra, noted = _object(settings.get("extra")), request.noted
        now, model = status or self.status, settings.get("model") or ANY_MODEL
        return {
            "id": str(self.id),
            "object": "response",
            "created_at": int(request.logged_at.timestamp()),
            "status": now,
            "background": False,
            "conversation": {"id": self.id.context_id},
            "error": self._error() if status is None else None,
            "incomplete_details": self._why_incomplete() if now == "incomplete" else None,
            "instructions": settings.get(INSTRUCTION) if noted.get("has_instructions") else None,
            "max_output_tokens": settings.get("max_completion_tokens"),
            "metadata": noted.get("metadata") or {},
            "model": (self._following.answer.model or model) if status is None else model,
            "output": self.output() if status is None else [],
            "parallel_tool_calls": True,
            "previous_response_id": noted.get("previous_response_id"),
            "reasoning": {"effort": extra.get("reasoning_effort"), "summary": None},
            "store": True,
            "temperature": settings.get("temperature"),
            "text": _text_format(extra),
            "tool_choice": "auto",
            "tools": [_tool(one) for one in request.tools if is_of_client(one)],
            "top_p": settings.get("top_p"),
            "truncation": "disabled",
            "usage": self._usage() if status is None else None,
        }

    def output(self) -> list[dict[str, Any]]:
        """Returns the model's text, and the calls that it leaves to the client."""
        text = self._following.answer.text
        return [*([self.message(text)] if text else []), *self.calls()]

    def message(self, text: str, status: str | None = None) -> dict[str, Any]:
        """Returns the message with this text. With an empty text the message has just begun."""
        now = self.status
        return {
            "id": self.message_id,
            "type": "message",
            "role": "assistant",
            "status": status or (now if now in ("in_progress", "completed") else "incomplete"),
            "content": [part(text)] if text else [],
        }

    @property
    def message_id(self) -> str:
        return f"{MESSAGE_PREFIX}{self.id.token}"

    def calls(self) -> list[dict[str, Any]]:
        """Returns the calls that the client has to answer."""
        if self._following.answer.was_interrupted:
            return []
        return [
            {
                "id": f"{CALL_PREFIX}{self.id.token}_{number}",
                "type": "function_call",
                "status": "completed",
                "call_id": tool_call["id"],
                **tool_call["function"],
            }
            for number, call in enumerate(self._following.calls)
            for tool_call in call_messages.call(
                ToolCallId(call.tool_call_id), call.function_name, call.arguments
            )["tool_calls"]
        ]

    def _error(self) -> dict[str, str] | None:
        failure = self._following.answer.failure
        if failure is None:
            return None
        code = "invalid_prompt" if failure.code in REFUSED else "server_error"
        return {"code": code, "message": f"{failure.message} ({failure.code})"}

    def _why_incomplete(self) -> dict[str, str] | None:
        reason = CUT_OFF.get(self._following.answer.finish_reason or "")
        return None if reason is None else {"reason": reason}

    def _usage(self) -> dict[str, Any] | None:
        """The tokens of all runs of the answer; None if no provider counted any."""
        used = self._following.answer.usage
        if not used:
            return None
        read, written = used["input_tokens"], used["output_tokens"]
        return {
            "input_tokens": read,
            "input_tokens_details": {
                "cached_tokens": used["cache_read_tokens"],
                "cache_write_tokens": used["cache_write_tokens"],
            },
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": used["reasoning_tokens"]},
            "total_tokens": read + written,
        }


def part(text: str) -> dict[str, Any]:
    """Returns the only part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _text_format(extra: Mapping[str, Any]) -> dict[str, Any]:
    form = _object(extra.get("response_format")) or {"type": "text"}
    text_format = {"format": {"type": form.get("type"), **_object(form.get("json_schema"))}}
    return text_format | ({"verbosity": extra["verbosity"]} if "verbosity" in extra else {})


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = _object(tool.get("function"))
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", **{name: function.get(name) for name in names}}


def _object(value: Any) -> Mapping[str, Any]:
    """Returns a mapping unchanged, and an empty one for any other value: publishers may set any value."""
    return value if isinstance(value, Mapping) else {}

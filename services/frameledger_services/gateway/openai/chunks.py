"""Completions and their chunks, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from frameledger import derived
from frameledger.evolve import call_messages
from frameledger.ids import ContextId, ToolCallId, Version
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.request import CompletionRequest
from frameledger_services.gateway.openai.request_values import ANY_MODEL

DONE = b"data: [DONE]\n\n"

FINISHED = ("stop", "length", "content_filter")
"""Finish reasons that are forwarded. All others become `stop`: an interruption, and function calls after which the
model did not run again."""


class Writer:
    """Writes one answer."""

    def __init__(self, chat_request: CompletionRequest, following: Following) -> None:
        """Called when the answer has begun."""
        self._chat_request = chat_request
        self._following = following
        answer, question = following.answer, following.question
        run_id = answer.run_id or derived.run_id(ContextId(question.context_id), Version(question.version))
        began_at = following.began_at
        self._about = {
            "id": f"chatcmpl-{run_id}",
            "created": 0 if began_at is None else int(began_at.timestamp()),
            "model": answer.model or chat_request.model or ANY_MODEL,
        }

    def whole(self) -> bytes:
        """Returns the whole answer."""
        text, calls = self._following.answer.text, self._calls()
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
        message |= {"refusal": None, **({"tool_calls": calls} if calls else {})}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason()}
        return _json(
            {
                **self._about,
                "object": "chat.completion",
                "choices": [choice],
                "usage": self._usage(),
                "conversation": {"id": self._following.question.context_id},
            }
        )

    def begin(self) -> bytes:
        """Returns the first chunk."""
        about = {"conversation": {"id": self._following.question.context_id}}
        return self._chunk({"role": "assistant", "content": "", "refusal": None}, None, about)

    def news(self) -> bytes:
        """Returns a chunk with the text since the last call, or `b""` if there is none."""
        text = self._following.answer.more()
        return self._chunk({"content": text}) if text else b""

    def end(self) -> bytes:
        """Returns the last chunks."""
        last = b"".join(map(self._call, range(len(self._calls())), self._calls()))
        last += self._chunk({}, self._finish_reason())
        if self._chat_request.include_usage:
            last += self._event({"choices": [], "usage": self._usage()})
        return last + DONE

    def broken(self, error: Mapping[str, Any]) -> bytes:
        """Returns the event of an answer that breaks off."""
        return b"id: %d\ndata: %s\n\n" % (self._following.version, _json(error))

    def _calls(self) -> list[dict[str, Any]]:
        """The calls that the client has to answer."""
        if self._following.answer.was_interrupted:
            return []
        return [
            {"id": tool_call["id"], "type": "function", "function": tool_call["function"]}
            for call in self._following.calls
            for tool_call in call_messages.call(
                ToolCallId(call.tool_call_id), call.function_name, call.arguments
            )["tool_calls"]
        ]

    def _call(self, index: int, call: Mapping[str, Any]) -> bytes:
        """The chunks of a call: first its function, then its arguments."""
        function = call["function"]
        first_piece = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        arguments = {"index": index, "function": {"arguments": function["arguments"]}}
        return self._chunk({"tool_calls": [first_piece]}) + self._chunk({"tool_calls": [arguments]})

    def _chunk(
        self,
        delta: Mapping[str, Any],
        finish_reason: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._chat_request.include_usage else {}
        return self._event({"choices": [choice], **usage, **(about or {})})

    def _event(self, body: Mapping[str, Any]) -> bytes:
        chunk = {**self._about, "object": "chat.completion.chunk", **body}
        return b"id: %d\ndata: %s\n\n" % (self._following.version, _json(chunk))

    def _finish_reason(self) -> str:
        if self._calls():
            return "tool_calls"
        reason = self._following.answer.finish_reason
        return reason if reason in FINISHED and not self._following.answer.was_interrupted else "stop"

    def _usage(self) -> dict[str, Any] | None:
        """The tokens of all runs of the answer; None if no provider counted any."""
        used = self._following.answer.usage
        if not used:
            return None
        read, written = used["input_tokens"], used["output_tokens"]
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {
                "cached_tokens": used["cache_read_tokens"],
                "cache_write_tokens": used["cache_write_tokens"],
            },
            "completion_tokens_details": {"reasoning_tokens": used["reasoning_tokens"]},
        }


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=list).encode()

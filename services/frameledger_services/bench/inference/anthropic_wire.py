"""An answer in the format of Anthropic's messages: named events, and content in blocks that start and stop."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from frameledger_services.bench.inference.answers import (
    Answer,
    Arguments,
    Call,
    Failure,
    RedactedThought,
    Refused,
    Signature,
    Text,
    Thought,
)
from frameledger_services.bench.inference.http_wire import At, Response, Step
from frameledger_services.bench.inference.wire_format import Said, play

PATH: Final = "/messages"

_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def response(answer: Answer, model: str) -> Response:
    """Returns the answer as a stream of events."""
    return Response(200, {"content-type": "text/event-stream"}, _steps(answer, model))


def failure(failed: Failure) -> Response:
    """Returns the error in this format."""
    headers = {"content-type": "application/json"}
    if failed.retry_after is not None:
        headers["retry-after"] = failed.retry_after
    body = _error(_KINDS.get(failed.status, "api_error"), failed.message)
    return Response(failed.status, headers, (At(failed.first_byte_secs), json.dumps(body).encode()))


@lru_cache(maxsize=64)
def _steps(answer: Answer, model: str) -> tuple[Step, ...]:
    return tuple(play(answer, _Messages(answer, model)))


class _Messages:
    """`WireFormat` of Anthropic's messages."""

    def __init__(self, answer: Answer, model: str) -> None:
        self.ping = _event("ping")
        self.garbage = b"event: content_block_delta\ndata: {no json\n\n"
        self.last = _event("message_stop")
        self._answer = answer
        self._model = model
        self._blocks = _Blocks()

    def begin(self) -> Iterator[bytes]:
        yield _event("message_start", message=_message(self._answer, self._model))
        yield self.ping

    def piece(self, piece: Said) -> bytes:
        blocks = self._blocks
        match piece:
            case Text(text) | Refused(text):
                begin, place = blocks.text_or_thought({"type": "text", "text": ""})
                return begin + _delta(place, type="text_delta", text=text)
            case Thought(text):
                begin, place = blocks.text_or_thought({"type": "thinking", "thinking": "", "signature": ""})
                return begin + _delta(place, type="thinking_delta", thinking=text)
            case Signature(signature):
                begin, place = blocks.text_or_thought({"type": "thinking", "thinking": "", "signature": ""})
                return begin + _delta(place, type="signature_delta", signature=signature) + blocks.end()
            case RedactedThought(data):
                begin, _ = blocks.text_or_thought({"type": "redacted_thinking", "data": data})
                return begin + blocks.end()
            case Call(which, tool_call_id, name):
                return blocks.call(which, {"type": "tool_use", "id": tool_call_id, "name": name, "input": {}})
            case Arguments(which, text):
                return _delta(blocks.calls[which], type="input_json_delta", partial_json=text)

    def error(self, kind: str, message: str) -> bytes:
        return _named("error", _error(kind, message))

    def finish(self) -> bytes:
        return self._blocks.end_all() + _stop(self._answer)

    def usage(self) -> bytes:
        return b""  # it is in the event of the stop reason


class _Blocks:
    """The open blocks: one text or thought, or any number of calls."""

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}
        self._next = 0
        self._kind: str | None = None

    def text_or_thought(self, block: dict[str, Any]) -> tuple[bytes, int]:
        """Returns the events that end the open block and start this one, nothing if one of its kind is open; and its
        index."""
        if self._kind == block["type"]:
            return b"", self._next - 1
        ended = self.end()
        self._kind = block["type"]
        return ended + self._begin(block), self._next - 1

    def call(self, which: int, block: dict[str, Any]) -> bytes:
        ended = self.end()
        beginning = self._begin(block)
        self.calls[which] = self._next - 1
        return ended + beginning

    def end(self) -> bytes:
        if self._kind is None:
            return b""
        self._kind = None
        return _event("content_block_stop", index=self._next - 1)

    def end_all(self) -> bytes:
        ended = [_event("content_block_stop", index=place) for place in self.calls.values()]
        return self.end() + b"".join(ended)

    def _begin(self, block: dict[str, Any]) -> bytes:
        self._next += 1
        return _event("content_block_start", index=self._next - 1, content_block=block)


def _message(answer: Answer, model: str) -> dict[str, Any]:
    tokens = answer.tokens
    usage = {
        "input_tokens": tokens.read,
        "cache_read_input_tokens": tokens.from_cache,
        "cache_creation_input_tokens": tokens.to_cache,
        "output_tokens": 1,
    }
    fixed = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": model}
    return fixed | {"stop_reason": None, "stop_sequence": None, "usage": usage}


def _stop(answer: Answer) -> bytes:
    reason = _STOP_REASONS.get(answer.finish, answer.finish)
    usage: dict[str, Any] = {"output_tokens": answer.tokens.written}
    if answer.tokens.thought:
        usage["output_tokens_details"] = {"thinking_tokens": answer.tokens.thought}
    delta = {"stop_reason": reason, "stop_sequence": None}
    return _event("message_delta", delta=delta, usage=usage)


def _delta(place: int, **delta: str) -> bytes:
    return _event("content_block_delta", index=place, delta=delta)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _event(name: str, **data: Any) -> bytes:
    return _named(name, {"type": name} | data)


def _named(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()

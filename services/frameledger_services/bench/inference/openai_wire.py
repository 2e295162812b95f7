"""An answer in the format of OpenAI's chat completions: server-sent events without names, then `[DONE]`."""

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
    Tokens,
)
from frameledger_services.bench.inference.http_wire import At, Response, Step
from frameledger_services.bench.inference.wire_format import Said, play

PATH: Final = "/chat/completions"

_KINDS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_exceeded"}


def response(answer: Answer, model: str, *, with_usage: bool = True) -> Response:
    """Returns the answer as a stream of chunks; the usage is in a last chunk of its own if the request asked for it."""
    return Response(200, {"content-type": "text/event-stream"}, _steps(answer, model, with_usage))


def failure(failed: Failure) -> Response:
    """Returns the error in this format."""
    kind = _KINDS.get(failed.status, "server_error")
    error = {"message": failed.message, "type": kind, "param": None, "code": None}
    headers = {"content-type": "application/json"}
    if failed.retry_after is not None:
        headers["retry-after"] = failed.retry_after
    return Response(
        failed.status, headers, (At(failed.first_byte_secs), json.dumps({"error": error}).encode())
    )


@lru_cache(maxsize=64)
def _steps(answer: Answer, model: str, with_usage: bool) -> tuple[Step, ...]:
    return tuple(play(answer, _Chunks(answer, model, with_usage)))


class _Chunks:
    """`WireFormat` of chat completions."""

    ping = b": keep-alive\n\n"
    garbage = b"data: {no json\n\n"
    last = b"data: [DONE]\n\n"

    def __init__(self, answer: Answer, model: str, with_usage: bool) -> None:
        self._answer = answer
        self._model = model
        self._with_usage = with_usage

    def begin(self) -> Iterator[bytes]:
        yield _chunk(self._model, {"role": "assistant", "content": ""})

    def piece(self, piece: Said) -> bytes | None:
        delta = _delta(piece)
        return None if delta is None else _chunk(self._model, delta)

    def error(self, kind: str, message: str) -> bytes:
        return _event({"error": {"message": message, "type": kind, "param": None, "code": kind}})

    def finish(self) -> bytes:
        return _chunk(self._model, {}, self._answer.finish)

    def usage(self) -> bytes:
        if not self._with_usage:
            return b""
        return _event(_body(self._model) | {"choices": [], "usage": _usage(self._answer.tokens)})


def _delta(piece: Said) -> dict[str, Any] | None:
    match piece:
        case Text(text):
            return {"content": text}
        case Thought(text):
            return {"reasoning_content": text}
        case Refused(text):
            return {"refusal": text}
        case Call(place, tool_call_id, name):
            function = {"name": name, "arguments": ""}
            call = {"index": place, "id": tool_call_id, "type": "function", "function": function}
            return {"tool_calls": [call]}
        case Arguments(place, text):
            return {"tool_calls": [{"index": place, "function": {"arguments": text}}]}
        case Signature() | RedactedThought():
            return None


def _chunk(model: str, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event(_body(model) | {"choices": [choice], "usage": None})


def _body(model: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.read,
        "completion_tokens": tokens.written,
        "total_tokens": tokens.read + tokens.written,
        "prompt_tokens_details": {
            "cached_tokens": tokens.from_cache,
            "cache_write_tokens": tokens.to_cache,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": tokens.thought, "audio_tokens": 0},
    }


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"

"""An answer in the format of OpenAI's chat completions: server-sent events without names, then `[DONE]`."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from frameledger_services.bench.inference.answers import (
    Answer,
    Arguments,
    Call,
    Cut,
    EndEarly,
    Failure,
    Garbage,
    Hang,
    Pause,
    Ping,
    RedactedThought,
    Refused,
    Signature,
    StreamError,
    Text,
    Thought,
    Tokens,
)
from frameledger_services.bench.inference.http_wire import At, Response, Step

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
    return tuple(_play(answer, model, with_usage))


def _play(answer: Answer, model: str, with_usage: bool) -> Iterator[Step]:
    at = answer.first_byte_secs
    yield At(at)
    yield _chunk(model, {"role": "assistant", "content": ""})
    for piece in answer.pieces:
        match piece:
            case Text(text):
                yield _chunk(model, {"content": text})
            case Thought(text):
                yield _chunk(model, {"reasoning_content": text})
            case Refused(text):
                yield _chunk(model, {"refusal": text})
            case Call(place, tool_call_id, name):
                function = {"name": name, "arguments": ""}
                call = {"index": place, "id": tool_call_id, "type": "function", "function": function}
                yield _chunk(model, {"tool_calls": [call]})
            case Arguments(place, text):
                yield _chunk(model, {"tool_calls": [{"index": place, "function": {"arguments": text}}]})
            case Signature() | RedactedThought():
                continue  # this format has no such piece
            case Pause(secs):
                at += secs
                yield At(at)
                continue
            case Ping():
                yield b": keep-alive\n\n"
            case Cut():
                yield "cut"
                return
            case Hang():
                yield "hang"
                return
            case EndEarly():
                return
            case StreamError(kind, message):
                yield _event({"error": {"message": message, "type": kind, "param": None, "code": kind}})
                return
            case Garbage():
                yield b"data: {no json\n\n"
                return
        if answer.pace is not None:
            at += 1 / answer.pace
            yield At(at)
    yield _chunk(model, {}, answer.finish)
    if answer.ending == "cut":
        yield "cut"
        return
    if with_usage:
        yield _event(_body(model) | {"choices": [], "usage": _usage(answer.tokens)})
    if answer.ending != "silent":
        yield b"data: [DONE]\n\n"
    if answer.ending in ("silent", "hang"):
        yield "hang"


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

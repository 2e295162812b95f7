"""The chunks of a chat completion as frames."""

from __future__ import annotations

from collections.abc import Iterator

from frameledger.frames import (
    AnyFrame,
    FinishReason,
    LLMFullResponseEndFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
    Usage,
)
from frameledger_services.providers import extra_content, reasoning
from frameledger_services.providers.call_pieces import Announce, CallPieces
from frameledger_services.providers.errors import ProviderUnavailableError
from frameledger_services.providers.loose_json import JsonObject, an_object, number, objects, text
from frameledger_services.providers.request import encoded

_FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    # Mistral's word for a full context.
    "model_length": "length",
    "content_filter": "content_filter",
}

_BROKE_OFF = frozenset({"error", "abort", "insufficient_system_resource", "function_call_filter"})
"""Finish reasons of compatible servers that did not reach the end of an answer. The last one is Gemini's, if its model
has written an invalid call; the next attempt writes another."""


class OpenAIAnswer:
    """One answer while it arrives."""

    def __init__(self, provider: str, announce: Announce) -> None:
        """`announce` makes the announcement of the answer's calls."""
        self._provider = provider
        self._announce = announce
        self._calls = CallPieces()
        self._thinks_in: str | None = None
        """The field in which the open thought arrives, "" if servers do not need it back; None without a thought."""
        self._details = reasoning.Details()
        self._refused = False
        self._spoke = False
        self.usage: Usage | None = None
        """Tokens used so far; most servers report them with the end, some with every chunk."""
        self.finish_reason: str | None = None
        """Why the model stopped, in the API's word; None until it has said so."""
        self.complete = False
        """Whether the stream ended with `[DONE]`, which is no chunk: the usage follows the finish reason."""

    def take(self, chunk: JsonObject) -> list[AnyFrame]:
        """The frames of a chunk; often none."""
        if chunk.get("usage"):
            self.usage = _usage(an_object(chunk["usage"]))
        frames: list[AnyFrame] = []
        for choice in objects(chunk.get("choices")):
            if choice.get("index"):
                continue  # several answers were requested; the log stores one
            if choice.get("usage"):  # as Kimi has it
                self.usage = _usage(an_object(choice["usage"]))
            frames += self._frames_of(an_object(choice.get("delta")))
            self.finish_reason = text(choice.get("finish_reason")) or self.finish_reason
        return frames

    def _frames_of(self, delta: JsonObject) -> Iterator[AnyFrame]:
        yield from self._thought(*reasoning.of_delta(delta))
        self._details.add(objects(delta.get(reasoning.DETAILS)))
        refusal = text(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        # Mistral's reasoning models send a list of parts.
        for part in objects(delta.get("content")):
            yield from self._thought(_thinking(part), "")
            yield from self._text(text(part.get("text")))
        yield from self._text(text(delta.get("content")) + refusal)
        calls = delta.get("tool_calls")
        for call in [calls] if isinstance(calls, dict) else objects(calls):
            self._spoke = True
            function, custom = an_object(call.get("function")), an_object(call.get("custom"))
            self._calls.add(
                number(call.get("index")),
                tool_call_id=text(call.get("id")),
                function_name=text(function.get("name")) or text(custom.get("name")),
                arguments=_arguments(function.get("arguments")),
                custom_input=text(custom.get("input")) if custom else None,
                extra_content=an_object(call.get(extra_content.EXTRA)),
            )

    def _thought(self, thought: str, field: str) -> Iterator[AnyFrame]:
        if thought:
            if self._thinks_in is None:
                self._thinks_in = field
                llm = reasoning.kept_under(self._provider) if field else self._provider
                yield LLMThoughtStartFrame(llm=llm, append_to_context=bool(field))
            yield LLMThoughtTextFrame(text=thought)

    def _text(self, content: str) -> Iterator[AnyFrame]:
        if content:
            self._spoke = True
            yield from self._end_thought()
            yield LLMTextFrame(text=content)

    def _end_thought(self) -> Iterator[AnyFrame]:
        field, self._thinks_in = self._thinks_in, None
        if field is not None:
            yield LLMThoughtEndFrame(signature=reasoning.signature(field) if field else None)

    def end(self) -> Iterator[AnyFrame]:
        """Returns the frames of the stream's end. Raises `ConnectionLostError` if neither a finish reason arrived nor,
        after text or calls, the last event, and `ProviderUnavailableError` if the server broke off.

        Some servers never send a finish reason: vllm-mlx, Groq with some models, gateways to Gemini. Retries would only
        repeat the answer, with the same end."""
        stated = self.finish_reason or ""
        if not stated and not (self.complete and self._spoke):
            raise self._calls.broken_off(self._provider)
        # Gemini adds more, as in `content_filter: RECITATION`.
        kind = stated.partition(":")[0]
        if kind in _BROKE_OFF:
            raise ProviderUnavailableError(f"{self._provider} broke off its answer: {stated}.")
        reason = _FINISH.get(kind)
        calls = self._calls.made(reason)
        yield from self._end_thought()
        yield from self._details.thought(self._provider, calls)
        if calls:
            yield from extra_content.thought_of(self._provider, calls, self._calls.extra_contents())
            yield self._announce(calls)
            reason = "tool_calls" if reason == "stop" else reason
        elif self._refused:
            reason = "content_filter"
        yield LLMFullResponseEndFrame(finish_reason=reason, usage=self.usage)


def _thinking(part: JsonObject) -> str:
    """Returns the thought of a part of a content: a text, or a list of parts with texts."""
    thinking = part.get("thinking")
    return text(thinking) or "".join(text(one.get("text")) for one in objects(thinking))


def _arguments(arguments: object) -> str:
    """Returns arguments as JSON text. Some servers send the object itself."""
    return encoded(arguments).decode() if isinstance(arguments, dict) else text(arguments)


def _usage(reported: JsonObject) -> Usage:
    read = an_object(reported.get("prompt_tokens_details"))
    input_tokens, output_tokens = (
        number(reported.get("prompt_tokens")),
        number(reported.get("completion_tokens")),
    )
    total = number(reported.get("total_tokens"))
    if total is not None and input_tokens is not None and output_tokens is not None:
        # xAI and Gemini exclude the tokens of thoughts from the completion's, but bill them.
        output_tokens = max(output_tokens, total - input_tokens)
    # Kimi's and DeepSeek's names for the same.
    cached = read.get("cached_tokens"), reported.get("cached_tokens"), reported.get("prompt_cache_hit_tokens")
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=next((count for one in cached if (count := number(one)) is not None), None),
        cache_write_tokens=number(read.get("cache_write_tokens")),
        reasoning_tokens=number(an_object(reported.get("completion_tokens_details")).get("reasoning_tokens")),
    )

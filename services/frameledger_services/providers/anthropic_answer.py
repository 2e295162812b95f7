"""The events of one of Anthropic's messages as frames."""

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
from frameledger_services.providers.call_pieces import Announce, CallPieces
from frameledger_services.providers.loose_json import JsonObject, an_object, number, text
from frameledger_services.providers.request import encoded

_FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # The provider's own tools ran for too long: the answer is incomplete.
    "pause_turn": "length",
    "refusal": "content_filter",
}


class AnthropicAnswer:
    """One answer while it arrives."""

    def __init__(self, provider: str, announce: Announce) -> None:
        """`announce` makes the announcement of the answer's calls."""
        self._provider = provider
        self._announce = announce
        self._calls = CallPieces()
        self._inputs: dict[int, object] = {}
        self._signatures: dict[int, str] = {}
        self._thought = self._thought_enough = False
        self._usage: dict[str, int] = {}
        self.finish_reason: str | None = None
        """Why the model stopped, in the API's word; None until it has said so."""
        self.complete = False
        """Whether the last event has come."""
        self.usage: Usage | None = None
        """Tokens used so far: counted when the answer begins and when it ends; None before that."""

    def take(self, event: JsonObject) -> Iterator[AnyFrame]:
        """The frames of an event. Unknown kinds of blocks and deltas are skipped."""
        place = number(event.get("index")) or 0
        match event.get("type"):
            case "message_start":
                self._count(an_object(an_object(event.get("message")).get("usage")))
            case "content_block_start":
                yield from self._begin(place, an_object(event.get("content_block")))
            case "content_block_delta":
                yield from self._continue_block(place, an_object(event.get("delta")))
            case "content_block_stop":
                yield from self._end_thought(place)
            case "message_delta":
                self._count(an_object(event.get("usage")))
                reason = text(an_object(event.get("delta")).get("stop_reason"))
                self.finish_reason = reason or self.finish_reason
            case "message_stop":
                self.complete = True

    def _begin(self, place: int, block: JsonObject) -> Iterator[AnyFrame]:
        # Blocks come one after another: a server that does not say that one ended has begun the next.
        for earlier in tuple(self._signatures):
            yield from self._end_thought(earlier)
        is_thought = block.get("type") in ("thinking", "redacted_thinking")
        self._thought_enough = self._thought_enough or (self._thought and not is_thought)
        self._thought = self._thought or is_thought
        match block.get("type"):
            case "text":
                yield from _text_frames(LLMTextFrame, block.get("text"))
            case "thinking":
                self._signatures[place] = text(block.get("signature"))
                yield self._thought_start()
                yield from _text_frames(LLMThoughtTextFrame, block.get("thinking"))
            case "redacted_thinking":
                yield self._thought_start()
                yield LLMThoughtEndFrame(signature=block)
            case "tool_use":
                # A server may give every block the same place.
                self._take_input(place)
                self._calls.add(
                    place, tool_call_id=text(block.get("id")), function_name=text(block.get("name"))
                )
                # Arguments come in pieces; a server that has them at once puts them here.
                if block.get("input"):
                    self._inputs[place] = block["input"]

    def _thought_start(self) -> LLMThoughtStartFrame:
        # The context has the thoughts of an answer before its text. Thoughts after text, calls or steps of the
        # provider's own tools would be sent back in another order, which the API refuses; it accepts the answer without
        # them.
        return LLMThoughtStartFrame(append_to_context=not self._thought_enough, llm=self._provider)

    def _continue_block(self, place: int, delta: JsonObject) -> Iterator[AnyFrame]:
        match delta.get("type"):
            case "text_delta":
                yield from _text_frames(LLMTextFrame, delta.get("text"))
            case "thinking_delta":
                yield from _text_frames(LLMThoughtTextFrame, delta.get("thinking"))
            case "signature_delta" if place in self._signatures:
                self._signatures[place] += text(delta.get("signature"))
            case "input_json_delta":
                # The provider's own tools have such pieces too, without a call of ours. The first piece is often empty.
                if place in self._calls and (piece := text(delta.get("partial_json"))):
                    self._inputs.pop(place, None)
                    self._calls.add(place, arguments=piece)

    def _take_input(self, place: int) -> None:
        """Add the arguments from the beginning of the call at this place, if no others have arrived."""
        if place in self._inputs:
            arguments = self._inputs.pop(place)
            # As text they are already JSON.
            self._calls.add(place, arguments=text(arguments) or encoded(arguments).decode())

    def _end_thought(self, place: int) -> Iterator[AnyFrame]:
        if place in self._signatures:
            yield LLMThoughtEndFrame(signature=self._signatures.pop(place) or None)

    def end(self) -> Iterator[AnyFrame]:
        """The frames of the stream's end. Raises `ConnectionLostError` if no stop reason came."""
        if self.finish_reason is None:
            raise self._calls.broken_off(self._provider)
        for place in tuple(self._inputs):
            self._take_input(place)
        reason = _FINISH.get(self.finish_reason)
        calls = self._calls.made(reason)
        for place in tuple(self._signatures):
            yield from self._end_thought(place)
        if calls:
            yield self._announce(calls)
            reason = "tool_calls" if reason == "stop" else reason
        yield LLMFullResponseEndFrame(finish_reason=reason, usage=self.usage)

    def _count(self, usage: JsonObject) -> None:
        """Counts that are reported replace earlier ones."""
        reported = {
            "input": usage.get("input_tokens"),
            "cache_read": usage.get("cache_read_input_tokens"),
            "cache_write": usage.get("cache_creation_input_tokens"),
            "output": usage.get("output_tokens"),
            "reasoning": an_object(usage.get("output_tokens_details")).get("thinking_tokens"),
        }
        self._usage |= {
            name: count for name, value in reported.items() if (count := number(value)) is not None
        }
        self.usage = self._counted()

    def _counted(self) -> Usage | None:
        """Anthropic's input excludes tokens read from or written to the cache; ours is all that the model read."""
        if not self._usage:
            return None
        counts = self._usage
        read = [counts.get(name) for name in ("input", "cache_read", "cache_write")]
        return Usage(
            input_tokens=None if read[0] is None else sum(count or 0 for count in read),
            output_tokens=counts.get("output"),
            cache_read_tokens=counts.get("cache_read"),
            cache_write_tokens=counts.get("cache_write"),
            reasoning_tokens=counts.get("reasoning"),
        )


def _text_frames(
    frame: type[LLMTextFrame] | type[LLMThoughtTextFrame], value: object
) -> Iterator[LLMTextFrame | LLMThoughtTextFrame]:
    piece = text(value)
    if piece:
        yield frame(text=piece)

"""Reasoning that a compatible server streams, and expects back in later requests.

Once functions are called, DeepSeek and Kimi refuse a request that has an answer of their thinking mode without its
reasoning: each later request of the conversation would fail. So reasoning is stored as it is streamed, as a thought
before its answer. It has its own provider name (see `extra_content`), and its signature names the field that it was in.

OpenRouter also sends it in parts (`reasoning_details`), some of them signed or sealed by the model. Gemini behind
OpenRouter refuses each request after a call without them. The parts of an answer are stored as one more thought, after
its other thoughts, which it replaces in requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from frameledger.context import LLMContextMessage, LLMSpecificMessage
from frameledger.frames import AnyFrame, FunctionCallFromLLM, LLMThoughtEndFrame, LLMThoughtStartFrame
from frameledger_services.providers import extra_content
from frameledger_services.providers.loose_json import JsonObject, text
from frameledger_services.providers.pairing import tool_calls

FIELDS = ("reasoning_content", "reasoning")
"""The fields of a message in which servers send reasoning."""

DETAILS = "reasoning_details"
"""OpenRouter's field with parts of the reasoning, which the signature of their thought names."""

_STREAMED = ("text", "summary")
"""Fields of a part that come in pieces."""


def kept_under(provider: str) -> str:
    """Returns the name that such a thought has in a context."""
    return f"{provider}/reasoning"


def signature(field: str) -> dict[str, str]:
    """Returns the signature of a thought that came in this field. Stored; its form never changes."""
    return {"field": field}


def of_delta(delta: JsonObject) -> tuple[str, str]:
    """Returns the reasoning of a delta and the field that it came in; both are empty if it has none."""
    return next(((said, field) for field in FIELDS if (said := text(delta.get(field)))), ("", ""))


class Details:
    """The parts of one answer's reasoning, put together from their pieces."""

    def __init__(self) -> None:
        self._parts: list[JsonObject] = []
        self._pieces: list[dict[str, list[str]]] = []
        """Of each part, the pieces of its streamed fields."""

    def add(self, pieces: Iterable[JsonObject]) -> None:
        for piece in pieces:
            at = self._continued(piece)
            if at is None:
                at = len(self._parts)
                self._parts.append({})
                self._pieces.append({})
            for name, value in piece.items():
                if name in _STREAMED and isinstance(value, str):
                    self._pieces[at].setdefault(name, []).append(value)
                elif value is not None or name not in self._parts[at]:
                    self._parts[at][name] = value

    def thought(self, provider: str, calls: Sequence[FunctionCallFromLLM]) -> Iterator[AnyFrame]:
        """Yields the frames that keep the parts; none if no part is JSON. Parts name calls, whose ids may differ by the
        time that the parts are sent back: `calls` are those of the answer."""
        details = [
            part | {name: "".join(texts) for name, texts in pieces.items()}
            for part, pieces in zip(self._parts, self._pieces, strict=True)
        ]
        if details and extra_content.is_json({DETAILS: details}):
            named = {
                call.tool_call_id: extra_content.digest(call.function_name, call.arguments) for call in calls
            }
            yield LLMThoughtStartFrame(llm=kept_under(provider), append_to_context=True)
            yield LLMThoughtEndFrame(signature={"field": DETAILS, "details": details, "calls": named})

    def _continued(self, piece: JsonObject) -> int | None:
        """Returns the place of the part that a piece continues; None if it begins one. A sealed part is always
        whole."""
        if not any(name in piece for name in (*_STREAMED, "signature")):
            return None
        of = piece.get("type"), piece.get("index")
        places = reversed(range(len(self._parts)))
        return next(
            (at for at in places if (self._parts[at].get("type"), self._parts[at].get("index")) == of), None
        )


def returned(messages: Sequence[LLMContextMessage]) -> dict[int, Mapping[str, Any]]:
    """Returns the field to add to each assistant message, by its place: that of the thoughts before it, with their text
    or the signature of their parts. A thought that nothing followed is replaced by a later one, of another answer."""
    fields = [_field(message) for message in messages]
    # Kimi refuses a call without the field even if its model did not think; other servers read it as no reasoning.
    otherwise = {FIELDS[0]: ""} if FIELDS[0] in fields else {}
    added: dict[int, Mapping[str, Any]] = {}
    pending: dict[str, Any] = {}
    for place, (message, field) in enumerate(zip(messages, fields, strict=True)):
        if isinstance(message, LLMSpecificMessage):
            if field == DETAILS:
                pending = {field: message.message["signature"]}
            elif field is not None:
                before = pending.get(field, "") if place and fields[place - 1] else ""
                pending = {field: before + text(message.message.get("text"))}
        elif message.get("role") == "assistant":
            added[place], pending = pending or otherwise, {}
    return added


def naming(
    added: Mapping[str, Any], message: Mapping[str, Any], call_id: Callable[[str], str]
) -> Mapping[str, Any]:
    """Returns what is added to an assistant message, with the calls that it names under the ids that they have there.
    `call_id` returns an id as the provider accepts it."""
    kept = added.get(DETAILS)
    if kept is None:
        return added
    here: dict[str, list[str]] = {}
    for call in tool_calls(message):
        function = call["function"]
        found = extra_content.digest(function["name"], function.get("arguments"))
        here.setdefault(found, []).append(call_id(call["id"]))
    calls = kept.get("calls")
    ids = {
        name: here[found].pop(0)
        for name, found in (calls.items() if isinstance(calls, Mapping) else ())
        if isinstance(found, str) and here.get(found)
    }
    return {DETAILS: [_renamed(part, ids) for part in kept["details"]]}


def _renamed(part: Any, ids: Mapping[str, str]) -> Any:
    match part:
        case {"id": str(name)} if name in ids:
            return {**part, "id": ids[name]}
    return part


def _field(message: LLMContextMessage) -> str | None:
    match message:
        case LLMSpecificMessage(message={"type": "thought", "signature": {"field": str(field)} as signed}):
            known = field in FIELDS or (field == DETAILS and isinstance(signed.get("details"), list | tuple))
            return field if known else None
    return None

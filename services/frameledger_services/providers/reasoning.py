"""What a compatible server streams of its model's reasoning, and wants back in later requests.

DeepSeek and Kimi refuse a request for an answer of their thinking mode that comes without its reasoning, as soon as
functions are called: each later request of the conversation fails. So reasoning is stored as it is streamed, as a
thought in front of its answer. It stands under a name of its own (see `extra_content`), and its signature names the
field that it came in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from frameledger.context import LLMContextMessage, LLMSpecificMessage
from frameledger_services.providers.loose_json import JsonObject, text

FIELDS = ("reasoning_content", "reasoning")
"""The fields of a message that servers have for it."""


def kept_under(provider: str) -> str:
    """Returns the name under which such a thought stands in a context."""
    return f"{provider}/reasoning"


def signature(field: str) -> dict[str, str]:
    """Returns the signature of a thought that came in this field. Stored; its form never changes."""
    return {"field": field}


def of_delta(delta: JsonObject) -> tuple[str, str]:
    """Returns the reasoning of a delta and the field that it came in; both are empty if it has none."""
    return next(((said, field) for field in FIELDS if (said := text(delta.get(field)))), ("", ""))


def returned(messages: Sequence[LLMContextMessage]) -> dict[int, Mapping[str, str]]:
    """Returns what is added to each assistant message, by its place: the field of the thoughts before it, and in it
    their text. A thought that nothing followed is replaced by a later one, of another answer."""
    fields = [_field(message) for message in messages]
    # Kimi refuses a call without the field even if its model did not think; other servers read it as no reasoning.
    otherwise = {FIELDS[0]: ""} if FIELDS[0] in fields else {}
    added: dict[int, Mapping[str, str]] = {}
    pending: dict[str, str] = {}
    for place, (message, field) in enumerate(zip(messages, fields, strict=True)):
        if isinstance(message, LLMSpecificMessage):
            if field is not None:
                before = pending.get(field, "") if place and fields[place - 1] else ""
                pending = {field: before + text(message.message.get("text"))}
        elif message.get("role") == "assistant":
            added[place], pending = pending or otherwise, {}
    return added


def _field(message: LLMContextMessage) -> str | None:
    match message:
        case LLMSpecificMessage(message={"type": "thought", "signature": {"field": str(field)}}):
            return field if field in FIELDS else None
    return None

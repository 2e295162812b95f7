"""The part of a message that a client sees, and that is compared when it resends its history (`history`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

JsonObject = Mapping[str, Any]


@dataclass(slots=True)
class Turn:
    """A sent message, or consecutive messages of the assistant."""

    kind: Literal["user", "assistant", "other"]
    messages: list[JsonObject]
    key: Any = None
    """The `key` of the message; None for words of the assistant."""

    length: int = 0
    """The number of characters of the assistant's words, squeezed."""


def turns(sent: Iterable[JsonObject]) -> list[Turn]:
    """Returns the sent messages as turns, without assistant messages that have no text: these are placeholders of
    answers that never came."""
    result: list[Turn] = []
    for message in sent:
        if not is_words(message):
            kind: Literal["user", "other"] = "user" if message.get("role") == "user" else "other"
            result.append(Turn(kind, [message], key(message)))
        elif text := squeezed(text_of(message)):
            if result and result[-1].kind == "assistant":
                result[-1].messages.append(message)
                result[-1].length += 1 + len(text)
            else:
                result.append(Turn("assistant", [message], length=len(text)))
    return result


def text_of(message: JsonObject) -> str:
    """Returns the text of a message, its parts joined by line breaks. A refusal counts as text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts = [text for part in _parts(content) if (text := _text_of_part(part)) is not None]
    if isinstance(refusal := message.get("refusal"), str):
        texts.append(refusal)
    return "\n".join(texts)


def squeezed(text: str) -> str:
    """Returns the text with each stretch of whitespace as one space, and none at its ends."""
    return " ".join(text.split())


def is_words(message: JsonObject) -> bool:
    """Returns whether it is text of the assistant, and not a call of functions."""
    return message.get("role") == "assistant" and not message.get("tool_calls")


def is_seen(message: JsonObject) -> bool:
    """Returns whether every client sees it."""
    return message.get("role") == "user" or (is_words(message) and bool(squeezed(text_of(message))))


def key(message: JsonObject) -> Any:
    """Returns a value that is equal for two messages that a reader takes for the same."""
    named = {
        name: value
        for name, value in message.items()
        if name in ("role", "name", "tool_calls", "tool_call_id", "llm", "message") and value is not None
    }
    return _canonical({**named, "content": list(_comparable(message.get("content")))})


def _comparable(content: Any) -> Iterator[Any]:
    """Returns the parts of a content, with adjacent texts joined."""
    texts: list[str] = []
    for part in _parts(content):
        if (own := _text_of_part(part)) is not None:
            texts.append(own)
            continue
        if text := squeezed(" ".join(texts)):
            yield text
        texts = []
        yield part
    if text := squeezed(" ".join(texts)):
        yield text


def _parts(content: Any) -> Sequence[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list | tuple) else ()


def _text_of_part(part: Any) -> str | None:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text
    return None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=list)

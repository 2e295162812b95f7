"""Converts the items of a request's `input` to messages of a conversation, in the format of chat completions.

Consecutive calls are calls of one answer, and become one message. An item that no message can represent is refused; the
error names its place and what to send instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from frameledger.surrogates import has_half
from frameledger_services.gateway.openai import request_values
from frameledger_services.gateway.problems import ProblemError

Message = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")

NOTHING: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

TEXTS = ("input_text", "output_text", "text")


def refuse(param: str | None, why: str, *, code: str = "invalid_value") -> NoReturn:
    """Raise `bad-parameter` for a parameter, or for the body."""
    request_values.refuse(param, why if param is None else f"{param}: {why}", code=code)


def referenced(item: Any) -> str | None:
    """Returns the id of the item that an item refers to, if it is a reference. A reference need not have a type."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return None
    kind = item.get("type")
    is_reference = kind == "item_reference" or (kind is None and item.keys() <= {"id", "type"})
    return str(item["id"]) if is_reference else None


def messages(value: Any, stored: Mapping[str, Mapping[str, Any]] = NOTHING) -> tuple[Message, ...]:
    """Returns the messages of an `input`. `stored` has the items that it refers to, by their ids. Raises
    `bad-parameter`, and `no-such-response` for an item that does not exist."""
    if isinstance(value, str):
        return ({"role": "user", "content": value},)
    if not isinstance(value, list) or not value:
        refuse("input", "text, or a list of one or more items, is expected.")
    result: list[Message] = []
    for number, item in enumerate(value):
        place = f"input[{number}]"
        if (item_id := referenced(item)) is not None:
            item = _stored(place, item_id, stored)
        message = _message(place, item)
        if result and "tool_calls" in message and "tool_calls" in result[-1]:
            result[-1]["tool_calls"] += message["tool_calls"]
        else:
            result.append(message)
    return tuple(result)


def _stored(place: str, item_id: str, stored: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if item_id not in stored:
        raise ProblemError(
            "no-such-response",
            f"{place}: there is no item with the id {item_id[:100]!r}. Ids are those of the output of responses that "
            "are over; send any other item itself.",
            param=place,
            code="item_not_found",
        )
    return stored[item_id]


def _message(place: str, item: Any) -> Message:
    if not isinstance(item, dict):
        refuse(place, "an object is expected.")
    # A message need not have a type.
    match item.get("type", "message"):
        case "message":
            return _spoken_message(place, item)
        case "function_call":
            return _call(place, item)
        case "function_call_output":
            return {
                "role": "tool",
                "tool_call_id": _call_id(place, item),
                "content": _content(f"{place}.output", item.get("output")),
            }
        case "item_reference":
            refuse(f"{place}.id", "the id of an item is expected.")
        case kind:
            refuse(
                f"{place}.type",
                f"{str(kind)[:100]!r} is not supported: items are message, function_call, function_call_output and "
                "item_reference.",
            )


def _spoken_message(place: str, item: Mapping[str, Any]) -> Message:
    role = item.get("role")
    if role not in ROLES:
        refuse(f"{place}.role", f"one of {', '.join(ROLES)} is expected.")
    return {"role": role, "content": _content(f"{place}.content", item.get("content"))}


def _call(place: str, item: Mapping[str, Any]) -> Message:
    name, arguments = item.get("name"), item.get("arguments")
    if not isinstance(name, str):
        refuse(f"{place}.name", "the name of a function is expected.")
    if not isinstance(arguments, str):
        refuse(f"{place}.arguments", "JSON as a text is expected.")
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": _call_id(place, item), "type": "function", "function": function}],
    }


def _call_id(place: str, item: Mapping[str, Any]) -> str:
    call_id = item.get("call_id")
    # Only text that the database accepts.
    if not isinstance(call_id, str) or not call_id or "\x00" in call_id or has_half(call_id):
        refuse(f"{place}.call_id", "the `call_id` of a function_call is expected.")
    return call_id


def _content(place: str, content: Any) -> str | list[Message]:
    """Returns content as a string if it is only text, even if it was sent as one part: most stored content is a
    string."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or not content:
        refuse(place, "text, or a list of one or more parts, is expected.")
    parts = [_part(f"{place}[{number}]", part) for number, part in enumerate(content)]
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(place: str, part: Any) -> Message:
    if not isinstance(part, dict):
        refuse(place, "an object is expected.")
    match part.get("type"):
        case kind if kind in TEXTS:
            return {"type": "text", "text": _text(place, part, "text")}
        case "refusal":
            return {"type": "refusal", "refusal": _text(place, part, "refusal")}
        case "input_image":
            image = {"url": _inline(place, part, "image_url")}
            return {"type": "image_url", "image_url": image | _named(part, "detail")}
        case "input_file":
            return {
                "type": "file",
                "file": {"file_data": _inline(place, part, "file_data")} | _named(part, "filename"),
            }
        case "input_audio" if isinstance(part.get("input_audio"), dict):
            return {"type": "input_audio", "input_audio": part["input_audio"]}
        case kind:
            refuse(
                f"{place}.type",
                f"{str(kind)[:100]!r} is not supported: parts are input_text, output_text, refusal, input_image, "
                "input_file and input_audio.",
            )


def _text(place: str, part: Mapping[str, Any], name: str) -> str:
    text = part.get(name)
    if not isinstance(text, str):
        refuse(f"{place}.{name}", "text is expected.")
    return text


def _inline(place: str, part: Mapping[str, Any], name: str) -> str:
    """Returns the content of an image or a file. Files stored at OpenAI are not available to other models."""
    if not isinstance(part.get(name), str):
        refuse(f"{place}.{name}", f"wanted as a text; files are sent within the request, as `{name}`.")
    return str(part[name])


def _named(part: Mapping[str, Any], name: str) -> Message:
    return {name: part[name]} if part.get(name) is not None else {}

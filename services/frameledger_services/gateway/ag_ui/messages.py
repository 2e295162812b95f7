"""Converts stored messages to those that a client of AG-UI sees, each with an id.

A message keeps one id: that of the client that sent it, of the run that said it, or of the call that it makes or
answers, and otherwise its place. So text has the same id while it streams and when it is stored, and a client that
resends its history names the stored messages.

Thoughts are not shown, since only their provider reads them and clients keep them by themselves. Nor is the tool
message of a call without a result: in the protocol such a call is simply not answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frameledger import async_tool_messages
from frameledger.async_tool_messages import IN_PROGRESS
from frameledger_services.gateway.ag_ui import content_parts
from frameledger_services.store.shown_messages import ShownMessage

Message = dict[str, Any]
"""A message as its JSON object in the protocol."""

SHOWN_ROLES = frozenset(("user", "system", "developer", "assistant", "tool"))
"""Roles of messages that a client sees."""


def nth(name: str, number: int) -> str:
    """Returns a unique name for number `number`, from 1, of those with the same name."""
    return name if number == 1 else f"{name}~{number}"


def call_of_name(name: str) -> str:
    """Returns the id of the call that a client knows by this name: the name without its number."""
    call, mark, number = name.rpartition("~")
    return call if mark and number.isascii() and number.isdigit() else name


def call_message_id(name: str) -> str:
    """Returns the id of the message that makes a call."""
    return f"call-{name}"


def result_message_id(name: str) -> str:
    """Returns the id of the message that answers a call."""
    return f"result-{name}"


class CallNames:
    """The ids by which a client knows calls, and which calls are open. A provider may reuse the id of a settled call
    (R3.1), but in the protocol an id always belongs to one call."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()
        self._open: dict[str, tuple[str, bool]] = {}
        """The name of each open call, and whether it is synchronous."""

    def note_call(self, tool_call_id: str) -> str:
        """Register a call that a message makes. Returns its name."""
        self._count[tool_call_id] += 1
        return nth(tool_call_id, self._count[tool_call_id])

    def name(self, tool_call_id: str) -> str:
        """Returns the name of the open call with this id, or of the latest one."""
        if tool_call_id in self._open:
            return self._open[tool_call_id][0]
        return nth(tool_call_id, max(1, self._count[tool_call_id]))

    def open(self, tool_call_id: str, synchronous: bool) -> None:
        """Mark the latest call with this id as in progress."""
        self._open[tool_call_id] = (nth(tool_call_id, self._count[tool_call_id]), synchronous)

    def is_open(self, tool_call_id: str) -> bool:
        """Returns whether a call with this id is open."""
        return tool_call_id in self._open

    def synchronous_name(self, tool_call_id: str) -> str | None:
        """Returns the name of the open call with this id, or None if it runs in the background or none is open."""
        name, synchronous = self._open.get(tool_call_id, (None, False))
        return name if synchronous else None

    def settle(self, tool_call_id: str) -> None:
        """Mark the call with this id as settled."""
        self._open.pop(tool_call_id, None)


def shown(stored: Iterable[ShownMessage]) -> tuple[list[Message], CallNames]:
    """Returns the messages that a client sees, in order, each under an id of its own, and the calls that they make."""
    placed, calls = shown_with_places(stored)
    return [message for _, message in placed], calls


def shown_with_places(stored: Iterable[ShownMessage]) -> tuple[list[tuple[int, Message]], CallNames]:
    """The same, each with its index in `stored`."""
    calls, texts, used = CallNames(), Counter[str](), set[str]()
    placed: list[tuple[int, Message]] = []
    before: Mapping[str, Any] = {}
    for place, stored_message in enumerate(stored):
        preferred_id, message = _shown(stored_message, before, calls, texts)
        before = stored_message.message
        if message is None:
            continue
        message_id = next(name for name in _candidates(stored_message, preferred_id) if name not in used)
        used.add(message_id)
        placed.append((place, {"id": message_id, **message}))
    return placed, calls


def _candidates(stored: ShownMessage, preferred_id: str | None) -> Iterable[str]:
    for candidate in (stored.client_id, preferred_id):
        if candidate is not None:
            yield candidate
    place, number = f"{stored.era}.{stored.position}", 1
    while True:
        yield nth(place, number)
        number += 1


def _shown(
    stored: ShownMessage, before: Mapping[str, Any], calls: CallNames, texts: Counter[str]
) -> tuple[str | None, Message | None]:
    """Returns the preferred id of a message, if one follows from its content, and the message, or None if it is not
    shown."""
    message = stored.message
    role, content = message.get("role"), message.get("content")
    match role:
        case "user":
            return None, _named(message, {"role": role, "content": content_parts.to_client(content)})
        case "system" | "developer":
            if role == "developer":
                _note_end(message, calls)
            return None, _named(message, {"role": role, "content": content_parts.text_of(content)})
        case "assistant":
            return _of_assistant(stored, calls, texts)
        case "tool":
            return _of_tool(message, before, calls)
    return None, None


def _of_assistant(
    stored: ShownMessage, calls: CallNames, texts: Counter[str]
) -> tuple[str | None, Message | None]:
    message = stored.message
    tool_calls = [one for one in map(_call, _list(message.get("tool_calls"))) if one is not None]
    if tool_calls:
        named = [{**one, "id": calls.note_call(one["id"])} for one in tool_calls]
        content = (
            {}
            if message.get("content") is None
            else {"content": content_parts.text_of(message.get("content"))}
        )
        return call_message_id(named[0]["id"]), _named(
            message, {"role": "assistant", **content, "toolCalls": named}
        )
    preferred_id = None
    if stored.run_id is not None:
        texts[stored.run_id] += 1
        preferred_id = nth(stored.run_id, texts[stored.run_id])
    return preferred_id, _named(
        message, {"role": "assistant", "content": content_parts.text_of(message.get("content"))}
    )


def _of_tool(
    message: Mapping[str, Any], before: Mapping[str, Any], calls: CallNames
) -> tuple[str | None, Message | None]:
    tool_call_id = message.get("tool_call_id")
    if not isinstance(tool_call_id, str):
        return None, None
    name, content = calls.name(tool_call_id), content_parts.text_of(message.get("content"))
    shown = {"role": "tool", "toolCallId": name, "content": content}
    call_ids = [one["id"] for one in map(_call, _list(before.get("tool_calls"))) if one is not None]
    if call_ids != [tool_call_id]:
        # Not where the fold writes it: a client sent it, and it says nothing about an open call.
        return None, shown
    if content == IN_PROGRESS:
        calls.open(tool_call_id, synchronous=True)
        return None, None
    if async_tool_messages.parse_message(message) is not None:
        calls.open(tool_call_id, synchronous=False)
    else:
        calls.settle(tool_call_id)
    return result_message_id(name), shown


def _note_end(message: Mapping[str, Any], calls: CallNames) -> None:
    payload = async_tool_messages.parse_message(message)
    if payload is not None and payload.kind == "final":
        calls.settle(payload.tool_call_id)


def _call(call: Any) -> Message | None:
    if not isinstance(call, Mapping) or not isinstance(call.get("id"), str):
        return None
    function = call.get("function")
    about: Mapping[str, Any] = function if isinstance(function, Mapping) else {}
    name, arguments = about.get("name"), about.get("arguments")
    return {
        "id": call["id"],
        "type": "function",
        "function": {
            "name": name if isinstance(name, str) else "",
            "arguments": arguments if isinstance(arguments, str) else "",
        },
    }


def _named(message: Mapping[str, Any], shown: Message) -> Message:
    name = message.get("name")
    return {**shown, "name": name} if isinstance(name, str) else shown


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()

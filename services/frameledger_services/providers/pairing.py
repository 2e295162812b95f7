"""Every call with its result directly after it: providers require that, but clients do not always append it so.

Stored history is never changed; these changes apply to one request. The rules:

- A call is answered by the first tool message of its id that follows it, before the id is called again; if there is
  none, by one directly before the message with the call. The answer is moved directly after that message.
- A call without any tool message gets one with `NO_RESULT`.
- A tool message without a call becomes a user message that begins with `STRAY_RESULT`. Not a developer message: a
  tool's result may be untrusted text, and must not gain authority.
- An id that is called again, which our log allows and providers do not, gets a number in both places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from frameledger.context import LLMContextMessage, LLMSpecificMessage
from frameledger_services.providers.request import encoded

NO_RESULT = "No result of this call is known."
"""The content of the tool message that is added to a call without one."""

STRAY_RESULT = "A tool's result that belongs to no call of this conversation (tool_call_id {tool_call_id}):"
"""The beginning of the user message that replaces a tool message without a call."""

_STRAY_BEGINNING = STRAY_RESULT.partition("{")[0]

_Place = tuple[int, int]
"""A call: the place of its message, and its place in that message."""


def paired(messages: Iterable[LLMContextMessage]) -> list[LLMContextMessage]:
    """Returns the messages in their order, with every call answered directly after it. The argument is not changed.

    Provider-specific messages are passed on as they are. Idempotent.
    """
    return answered(matched(messages))


def matched(messages: Iterable[LLMContextMessage]) -> list[LLMContextMessage]:
    """Returns the messages, each in its place: every call has an id of its own, its answer, if there is one, has the
    same, and tool messages without a call are user messages. So calls may be moved without taking another's answer."""
    history = list(messages)
    answers = _matches(history)
    ids = _Ids()
    names: dict[int, str] = {}
    for at, message in enumerate(history):
        calls = tool_calls(message)
        if not calls:
            continue
        named = [ids.unique(_id(call)) for call in calls]
        history[at] = {**_mapping(message), "tool_calls": _renamed(calls, named)}
        for ordinal, name in enumerate(named):
            if (answer := answers.get((at, ordinal))) is not None:
                names[answer] = name
    for at, message in enumerate(history):
        if _role(message) == "tool":
            fields = _mapping(message)
            if at not in names:
                history[at] = _as_user(message)
            elif fields.get("tool_call_id") != names[at]:
                history[at] = {**fields, "tool_call_id": names[at]}
    return history


def answered(messages: Sequence[LLMContextMessage]) -> list[LLMContextMessage]:
    """Returns messages that were `matched`, with every call answered directly after it."""
    answers = {_mapping(one)["tool_call_id"]: _mapping(one) for one in messages if _role(one) == "tool"}
    result: list[LLMContextMessage] = []
    for message in messages:
        if _role(message) == "tool":
            continue
        result.append(message)
        for call in tool_calls(message):
            answer = answers.get(call["id"])
            if answer is None:
                answer = {"role": "tool", "tool_call_id": call["id"], "content": NO_RESULT}
            result.append(answer if answer.get("content") is not None else {**answer, "content": ""})
    return result


def stray_results_at_end(messages: Sequence[LLMContextMessage]) -> int:
    """Returns how many of the last of these paired messages are results without a call, which the next message may turn
    into the answers of its calls."""
    return sum(1 for _ in takewhile(is_stray_result, reversed(messages)))


def is_stray_result(message: LLMContextMessage) -> bool:
    """Returns whether a `matched` message was a tool message without a call."""
    content = _mapping(message).get("content")
    if isinstance(content, list | tuple) and content:
        content = content[0].get("text") if isinstance(content[0], Mapping) else None
    return _role(message) == "user" and isinstance(content, str) and content.startswith(_STRAY_BEGINNING)


def tool_calls(message: LLMContextMessage) -> Sequence[Mapping[str, Any]]:
    """Returns the calls of an assistant message that are objects; none for other messages."""
    if _role(message) != "assistant":
        return ()
    calls = _mapping(message).get("tool_calls")
    return [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list | tuple) else ()


def _matches(history: Sequence[LLMContextMessage]) -> dict[_Place, int]:
    """Which message answers which call."""
    answers: dict[_Place, int] = {}
    waiting: dict[str, list[_Place]] = {}
    directly_before: dict[str, list[int]] = {}
    too_early: dict[_Place, int] = {}
    for at, message in enumerate(history):
        if _role(message) == "tool":
            name = _mapping(message).get("tool_call_id")
            name = name if isinstance(name, str) else ""
            if waiting.get(name):
                answers[waiting[name].pop(0)] = at
            else:
                directly_before.setdefault(name, []).append(at)
            continue
        here: dict[str, list[_Place]] = {}
        for ordinal, call in enumerate(tool_calls(message)):
            name = _id(call)
            here.setdefault(name, []).append((at, ordinal))
            if directly_before.get(name):
                too_early[at, ordinal] = directly_before[name].pop(0)
        directly_before.clear()
        # The id is used again: later results answer the new call.
        waiting |= here
    return too_early | answers


class _Ids:
    """Call ids of one history, each used once."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}
        """The lowest number of a name that may be free: a history may have one id thousands of times."""

    def unique(self, name: str) -> str:
        name = name or "call"
        unique_name, number = name, self._next.get(name, 2)
        while unique_name in self._used:
            unique_name, number = f"{name}-{number}", number + 1
        self._used.add(unique_name)
        self._next[name] = number
        return unique_name


def _renamed(calls: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Mapping[str, Any]]:
    return [
        call if call.get("id") == name else {**call, "id": name}
        for call, name in zip(calls, names, strict=True)
    ]


def _as_user(message: LLMContextMessage) -> dict[str, Any]:
    fields = _mapping(message)
    heading = STRAY_RESULT.format(tool_call_id=encoded(fields.get("tool_call_id")).decode())
    content = fields.get("content")
    if isinstance(content, list | tuple):
        return {"role": "user", "content": [{"type": "text", "text": heading}, *content]}
    return {"role": "user", "content": heading if content is None else f"{heading}\n{content}"}


def _role(message: LLMContextMessage) -> object:
    return None if isinstance(message, LLMSpecificMessage) else message.get("role")


def _mapping(message: LLMContextMessage) -> Mapping[str, Any]:
    return {} if isinstance(message, LLMSpecificMessage) else message


def _id(call: Mapping[str, Any]) -> str:
    name = call.get("id")
    return name if isinstance(name, str) else ""

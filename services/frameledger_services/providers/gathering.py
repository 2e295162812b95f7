"""The calls of one answer as one assistant message, although the context has each call before its own result.

A context is valid for a provider after every frame, so it has a pair of messages for each call, in the order in which
the calls started. Providers expect an answer as a whole: an assistant message with all its calls, and then all results.
Models that think require it, because the thought precedes only the first of the calls. Stored history is never changed;
these changes apply to one request. The rules:

- Calls are moved to the text or the thought of their own answer, or to its first call, even if other messages came
  before they started. An answer's text and its calls are one message.
- Calls of different answers stay apart, even if adjacent: the later one may depend on the result of the earlier one.
- If the answer of a call is unknown, as in a history that a client wrote, the call stays where it is. Only after a
  signed thought, calls with nothing but their results between them count as one answer's, because each answer of a
  model that thinks begins with a thought. A call that is appended later joins them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from frameledger.context import LLMContextMessage, LLMSpecificMessage
from frameledger_services.providers.pairing import is_stray_result, tool_calls


def gathered(
    messages: Sequence[LLMContextMessage], answers: Sequence[str | None]
) -> Iterator[LLMContextMessage]:
    """Returns `pairing.matched` messages with all calls of an answer in one of them. Results stay in place;
    `pairing.answered` moves them.

    `answers` has for each message the id of the answer that it belongs to; None where it is unknown.
    """
    named = _with_those_behind_thoughts(messages, answers)
    homes: dict[str, int] = {}
    calls: dict[int, list[Any]] = {}
    moved: set[int] = set()
    for at, (message, answer) in enumerate(zip(messages, named, strict=True)):
        if answer is None:
            continue
        if not _only_calls(message):
            if homes.get(answer) not in calls:
                homes[answer] = at
            continue
        home = homes.setdefault(answer, at)
        calls.setdefault(home, []).extend(tool_calls(message))
        moved.add(at)
    for at, message in enumerate(messages):
        if at not in calls:
            if at not in moved:
                yield message
        elif isinstance(message, LLMSpecificMessage):
            yield message
            yield {"role": "assistant", "tool_calls": calls[at]}
        else:
            # A client may have put words and calls of its own in the place of a message of the answer.
            own = () if at in moved else tool_calls(message)
            yield {**message, "tool_calls": [*own, *calls[at]]}


def _with_those_behind_thoughts(
    messages: Sequence[LLMContextMessage], answers: Sequence[str | None]
) -> list[str | None]:
    """Returns the answers, with a made-up id for each unknown one that begins with a signed thought."""
    named: list[str | None] = []
    current: str | None = None
    called = False
    for at, (message, answer) in enumerate(zip(messages, answers, strict=True)):
        name = None
        if answer is not None:
            current = None
        elif _is_signed_thought(message):
            if current is None or called:
                current, called = f"behind the thought {at}", False
            name = current
        elif _only_calls(message):
            name, called = current, True
        elif _is_text(message) and not called:
            name = current
        elif isinstance(message, LLMSpecificMessage) or not (
            message.get("role") == "tool" or is_stray_result(message)
        ):
            current = None
        named.append(answer or name)
    return named


def _only_calls(message: LLMContextMessage) -> bool:
    """Whether it has the form in which the fold writes a call; other forms, from clients, are not changed."""
    return bool(tool_calls(message)) and isinstance(message, Mapping) and not message.get("content")


def _is_text(message: LLMContextMessage) -> bool:
    return (
        isinstance(message, Mapping)
        and message.get("role") == "assistant"
        and isinstance(message.get("content"), str)
        and not message.get("tool_calls")
    )


def _is_signed_thought(message: LLMContextMessage) -> bool:
    match message:
        case LLMSpecificMessage(message={"type": "thought", "signature": signature}):
            return bool(signature)
        case LLMSpecificMessage(message={"type": "thinking" | "redacted_thinking"}):
            return True
    return False

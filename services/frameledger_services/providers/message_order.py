"""The orders of messages that servers other than OpenAI's require.

Gemini's API and the templates of many open models accept no request in which the assistant speaks first, as a bot may.
Mistral's API also requires instructions before all other messages, no user message directly after a tool message, and a
last message that is not the assistant's. Qwen's templates accept one system message, at the beginning, and those of
Gemma and Mistral no two consecutive messages of one role. Contexts have all of these: a user who speaks before the
model has answered, results of background calls, an answer that is to be continued, a service's instruction beside that
of the context. The messages that are added here have no content of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from frameledger_services.providers import content

OPENING = "(The conversation begins.)"
"""The user message that is inserted before an assistant message that would be the first."""

HEARD = "OK."
"""The assistant message that is inserted between a tool message and a user message."""

GOING_ON = "(Go on.)"
"""The user message that is appended after an assistant message that would be the last."""

_INSTRUCTIONS = ("system", "developer")


def user_first(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the messages with a user message as the first one after the instructions."""
    begun = list(dropwhile(lambda message: message["role"] in _INSTRUCTIONS, messages))
    opening = [] if begun and begun[0]["role"] == "user" else [{"role": "user", "content": OPENING}]
    return [*messages[: len(messages) - len(begun)], *opening, *begun]


def in_strict_order(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the messages in Mistral's order. Instructions that are not before all other messages become user
    messages."""
    ordered: list[Mapping[str, Any]] = []
    for message in messages:
        if message["role"] in _INSTRUCTIONS:
            first = not ordered or ordered[-1]["role"] == "system"
            message = {**message, "role": "system"} if first else as_user(message)
        if message["role"] == "user" and ordered and ordered[-1]["role"] == "tool":
            ordered.append({"role": "assistant", "content": HEARD})
        ordered.append(message)
    # A message with `prefix` is to be continued.
    if ordered and ordered[-1]["role"] == "assistant" and not ordered[-1].get("prefix"):
        ordered.append({"role": "user", "content": GOING_ON})
    return ordered


def alternating(
    messages: Iterable[Mapping[str, Any]], *, system_anywhere: bool = False
) -> list[Mapping[str, Any]]:
    """Returns the messages with neighbours merged if they differ only in their content, and not, for instance, in a
    name or in calls. System messages that are not before all other messages become user messages, unless they may be
    anywhere."""
    groups: list[list[Mapping[str, Any]]] = []
    for message in messages:
        before = groups[-1][-1] if groups else None
        late = before is not None and before["role"] != "system"
        if message["role"] == "system" and late and not system_anywhere:
            message = as_user(message)
        if before is not None and _goes_on(before, message):
            groups[-1].append(message)
        else:
            groups.append([message])
    return [_as_one(group) for group in groups]


def _goes_on(before: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    """Returns whether one message can replace both."""
    said = all(one.get("content") is not None for one in (before, message))
    return said and {**before, "content": None} == {**message, "content": None}


def _as_one(group: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(group) == 1:
        return group[0]
    texts = [message["content"] for message in group if isinstance(message["content"], str)]
    if len(texts) == len(group):
        return {**group[0], "content": "\n\n".join(filter(None, texts))}
    return {**group[0], "content": [part for message in group for part in content.parts(message)]}


def as_user(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an instruction as a user message, in a tag that names its role."""
    role, text = message["role"], content.text_of(message)
    return {"role": "user", "content": f"<{role}>\n{text}\n</{role}>"}

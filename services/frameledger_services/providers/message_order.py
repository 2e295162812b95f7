"""The orders of messages that servers beside OpenAI's demand.

Gemini's API and the templates of many open models take no request in which nobody has spoken before the assistant, as
where a bot speaks first. Mistral's API also wants instructions before everything else, no user's message directly
behind a tool's, and a last message that is not the assistant's. A context has all of these: a user who speaks before
the model has answered a result, the results of background calls, an answer that goes on. What is added here says
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import dropwhile
from typing import Any

from frameledger_services.providers import content

OPENING = "(The conversation begins.)"
"""The user message of a request in which nobody has spoken before the assistant."""

HEARD = "OK."
"""The assistant message put between a tool's and a user's."""

GOING_ON = "(Go on.)"
"""The user message put behind an assistant message that would be the last."""

_INSTRUCTIONS = ("system", "developer")


def user_first(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the messages with a user's as the first behind the instructions."""
    begun = list(dropwhile(lambda message: message["role"] in _INSTRUCTIONS, messages))
    opening = [] if begun and begun[0]["role"] == "user" else [{"role": "user", "content": OPENING}]
    return [*messages[: len(messages) - len(begun)], *opening, *begun]


def in_strict_order(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the messages in Mistral's order. Instructions that do not stand before all others become the user's."""
    ordered: list[Mapping[str, Any]] = []
    for message in messages:
        if message["role"] in _INSTRUCTIONS:
            first = not ordered or ordered[-1]["role"] == "system"
            message = {**message, "role": "system"} if first else as_user(message)
        if message["role"] == "user" and ordered and ordered[-1]["role"] == "tool":
            ordered.append({"role": "assistant", "content": HEARD})
        ordered.append(message)
    # One with `prefix` is to be continued.
    if ordered and ordered[-1]["role"] == "assistant" and not ordered[-1].get("prefix"):
        ordered.append({"role": "user", "content": GOING_ON})
    return ordered


def as_user(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an instruction as a user's message, in a tag that names its role."""
    role, text = message["role"], content.text_of(message)
    return {"role": "user", "content": f"<{role}>\n{text}\n</{role}>"}

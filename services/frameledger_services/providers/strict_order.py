"""Messages in the order that Mistral's API takes, whose rules for it are stricter than OpenAI's.

Instructions stand before everything else, a user's message never directly behind a tool's, and the last message is not
the assistant's. A context has all of these: a user who speaks before the model has answered a result, the results of
background calls, an answer that goes on. What is added here says nothing, and stays in its place in later requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from frameledger_services.providers import content

HEARD = "OK."
"""The assistant message put between a tool's and a user's."""

GOING_ON = "(Go on.)"
"""The user message put behind an assistant message that would be the last."""


def in_strict_order(messages: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the messages in this order. Instructions that do not stand before all others become the user's."""
    ordered: list[Mapping[str, Any]] = []
    for message in messages:
        if message["role"] in ("system", "developer"):
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

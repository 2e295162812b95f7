"""Chooses the reply of a script by the last message of the request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frameledger import async_tool_messages
from frameledger_services.providers import content
from frameledger_services.providers.script import When


@dataclass(frozen=True, slots=True)
class Cue:
    """The last message of a request: a user's, or the result of a function."""

    text: str
    function_name: str | None
    """None for a user's message."""

    turn: int
    """The number of user messages."""


def cue_of(messages: Sequence[Mapping[str, Any]]) -> Cue:
    """Returns the cue in the messages of a scripted request. The message of a call that still runs is not a cue."""
    names: dict[str, str] = {}
    cue = Cue("", None, 0)
    turn = 0
    for message in messages:
        match message.get("role"):
            case "assistant":
                for call in message.get("tool_calls") or ():
                    names[call["id"]] = call["function"]["name"]
            case "user":
                turn += 1
                cue = Cue(content.text_of(message), None, turn)
            case "tool" | "developer":
                async_result = async_tool_messages.parse_message(message)
                if async_result is not None:
                    if async_result.result is not None:
                        cue = Cue(async_result.result, names.get(async_result.tool_call_id, ""), turn)
                elif message["role"] == "tool" and message["content"] != async_tool_messages.IN_PROGRESS:
                    cue = Cue(content.text_of(message), names.get(message["tool_call_id"], ""), turn)
    return cue


def fits(when: When, cue: Cue) -> bool:
    """Returns whether all conditions in `when` hold."""
    if when.turn is not None and when.turn != cue.turn:
        return False
    if cue.function_name is None:
        return when.result_of is None and when.result is None and _found(when.user, cue.text)
    if when.user is not None or (when.result_of is None and when.result is None):
        return False
    return when.result_of in (None, cue.function_name) and _found(when.result, cue.text)


def repeated(cue: Cue) -> str:
    """Returns the text of the model if no reply fits."""
    if cue.function_name is not None:
        return f"The result is: {cue.text}"
    return f"You said: {cue.text}" if cue.text.strip() else "I am listening."


def _found(pattern: str | None, text: str) -> bool:
    return pattern is None or re.search(pattern, text, re.IGNORECASE) is not None

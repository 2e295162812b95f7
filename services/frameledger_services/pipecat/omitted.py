"""What is published instead of messages and results that cannot be stored, such as of more than 8 MiB. Pure.

A message has a position on the log. If it were omitted, later changes would apply to the wrong messages. A call without
its result would stay open for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from frameledger_services.pipecat.captured_frame import Fields
from frameledger_services.pipecat.pending import HISTORY

WHY_CHARACTERS = 300

SUBSTITUTED = HISTORY | {"FunctionCallResultFrame"}
"""Frames that are published in part rather than not at all."""


def with_omissions(fields: Fields, why: str, is_storable: Callable[[Fields], bool]) -> Fields | None:
    """Returns the frame with a substitute for its result, or for each message that is not storable by itself; None for
    a frame without these."""
    if "messages" in fields:
        messages = [
            one if is_storable({**fields, "messages": [one]}) else _omitted(one, why)
            for one in fields["messages"]
        ]
        return {**fields, "messages": messages}
    if fields.get("message") is not None:
        return {**fields, "message": _omitted(fields["message"], why)}
    if "result" in fields:
        return {**fields, "result": f"(This result could not be stored: {why[:WHY_CHARACTERS]})"}
    return None


def _omitted(message: Any, why: str) -> Fields:
    """Returns a message of the same role and calls, so that the history stays valid for a provider."""
    known = message if isinstance(message, Mapping) else {}
    role, result_of, calls = known.get("role"), known.get("tool_call_id"), known.get("tool_calls")
    fields: Fields = {
        "role": role if isinstance(role, str) else "developer",
        "content": f"(This message could not be stored: {why[:WHY_CHARACTERS]})",
    }
    if isinstance(result_of, str):
        fields["tool_call_id"] = result_of
    if isinstance(calls, list):
        fields["tool_calls"] = [called for one in calls if (called := _without_arguments(one)) is not None]
    return fields


def _without_arguments(call: Any) -> Fields | None:
    match call:
        case {"id": str(id_), "function": {"name": str(name)}}:
            return {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return None

"""The messages from which a model learns about a tool call that runs in the background.

Such a call has one started message in place of its tool message, any number of intermediate ones, and one final one,
after which nothing more follows for its id. Only this module knows their form: import it whole, and write
`async_tool_messages.build_started_message(...)`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import to_json

IN_PROGRESS = "IN_PROGRESS"
"""The content of a synchronous call's tool message until the call settles."""
COMPLETED = "COMPLETED"
"""Represents the result of a call that ended without one. A result with this very text is JSON, so it has quotes."""
CANCELLED = "CANCELLED"
"""Represents the result of a cancelled call."""

_STARTED = (
    "This call runs in the background. Its results follow in developer messages with the same tool_call_id; "
    "there is no need to call again."
)
_INTERMEDIATE = "One result of a call that is still running; more will follow."
_FINAL = "What a background call ended with; nothing more follows for this tool_call_id."


@dataclass(frozen=True, slots=True)
class AsyncToolMessagePayload:
    """The content of one such message. Its JSON is always derived from this and never stored beside it.

    `status` is "finished" for the final kind only. `description` is for the model; no rule reads it. `result` is null
    for a started message, otherwise JSON text, `COMPLETED` or `CANCELLED`.
    """

    kind: Literal["started", "intermediate", "final"]
    tool_call_id: str
    status: Literal["running", "finished"]
    description: str
    result: str | None

    def to_message(self) -> dict[str, Any]:
        """Returns the message for a context, a new dict. Equal payloads give equal bytes.

        `parse_message` returns an equal payload, provided that kind, status and result are consistent.
        """
        content = {
            "type": "async_tool",
            "status": self.status,
            "tool_call_id": self.tool_call_id,
            "description": self.description,
        }
        if self.kind == "started":
            return {"role": "tool", "content": _json(content), "tool_call_id": self.tool_call_id}
        return {"role": "developer", "content": _json(content | {"result": self.result})}


def build_started_message(tool_call_id: str) -> dict[str, Any]:
    """Returns the tool message of a call that starts to run in the background: its results will come later."""
    return AsyncToolMessagePayload("started", tool_call_id, "running", _STARTED, None).to_message()


def build_intermediate_result_message(tool_call_id: str, result: str) -> dict[str, Any]:
    """The developer message for a result before the last. `result` is JSON text, encoded by the caller."""
    payload = AsyncToolMessagePayload("intermediate", tool_call_id, "running", _INTERMEDIATE, result)
    return payload.to_message()


def build_final_result_message(tool_call_id: str, result: str) -> dict[str, Any]:
    """The developer message for the end of a call. `result` is JSON text, `COMPLETED` or `CANCELLED`."""
    return AsyncToolMessagePayload("final", tool_call_id, "finished", _FINAL, result).to_message()


def parse_message(message: object) -> AsyncToolMessagePayload | None:
    """Returns the payload of a message of this protocol; None for every other value.

    The kind follows from the role, the status and whether there is a result; where these do not agree the
    message is not of this protocol. Never raises.
    """
    if not isinstance(message, Mapping):
        return None
    content = _object(message.get("content"))
    if content is None or content.get("type") != "async_tool":
        return None
    tool_call_id, description = content.get("tool_call_id"), content.get("description", "")
    if not isinstance(tool_call_id, str) or not isinstance(description, str):
        return None
    match message.get("role"), content.get("status"), content.get("result"):
        case "tool", "running", None if message.get("tool_call_id") == tool_call_id:
            return AsyncToolMessagePayload("started", tool_call_id, "running", description, None)
        case "developer", "running", str(result):
            return AsyncToolMessagePayload("intermediate", tool_call_id, "running", description, result)
        case "developer", "finished", str(result):
            return AsyncToolMessagePayload("final", tool_call_id, "finished", description, result)
    return None


def _object(text: object) -> dict[str, Any] | None:
    if not isinstance(text, str):
        return None
    try:
        value = json.loads(text)  # the library's own, since it reads lone surrogates
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _json(value: dict[str, Any]) -> str:
    try:
        return to_json(value).decode()
    except ValueError:  # half of a surrogate pair has no UTF-8: it is written as its escape
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode(errors="backslashreplace").decode()

"""The messages of a call: the pair that its start appends, and how its results change it (R3.3, R3.5)."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from frameledger import async_tool_messages
from frameledger.async_tool_messages import CANCELLED, COMPLETED, IN_PROGRESS
from frameledger.evolve.changes import Message
from frameledger.ids import ToolCallId


def call(tool_call_id: ToolCallId, function_name: str, arguments: Any) -> Message:
    """Returns the assistant message that makes the call. Arguments that arrived as JSON text remain that text."""
    text = arguments if isinstance(arguments, str) else _json(arguments)
    function = {"name": function_name, "arguments": text}
    return {
        "role": "assistant",
        "tool_calls": [{"id": tool_call_id, "type": "function", "function": function}],
    }


def started(tool_call_id: ToolCallId, synchronous: bool) -> Message:
    """Returns the tool message of the call while there is no result."""
    if synchronous:
        return _tool(tool_call_id, IN_PROGRESS)
    return async_tool_messages.build_started_message(tool_call_id)


def result(tool_call_id: ToolCallId, value: Any) -> Message:
    """Returns the tool message of a synchronous call that is done; null is no result, every other value is one."""
    return _tool(tool_call_id, _encoded(value))


def cancelled(tool_call_id: ToolCallId) -> Message:
    return _tool(tool_call_id, CANCELLED)


def later_result(tool_call_id: ToolCallId, value: Any) -> Message:
    """Returns the developer message that ends an asynchronous call."""
    return async_tool_messages.build_final_result_message(tool_call_id, _encoded(value))


def intermediate_result(tool_call_id: ToolCallId, value: Any) -> Message:
    return async_tool_messages.build_intermediate_result_message(tool_call_id, _encoded(value))


def later_cancelled(tool_call_id: ToolCallId) -> Message:
    return async_tool_messages.build_final_result_message(tool_call_id, CANCELLED)


def _tool(tool_call_id: ToolCallId, content: str) -> Message:
    return {"role": "tool", "tool_call_id": tool_call_id, "content": content}


def _encoded(value: Any) -> str:
    return COMPLETED if value is None else _json(value)


def _json(value: Any) -> str:
    return to_json(value).decode()

"""Translates Pipecat's frames of function calls."""

from __future__ import annotations

import json
from typing import Any

from frameledger_services.pipecat.captured_frame import CapturedFrame, Fields, TranslationState, Translator
from frameledger_services.pipecat.values import to_json


def started(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    calls = [
        {
            "function_name": call.function_name,
            "tool_call_id": call.tool_call_id,
            "arguments": _arguments(call.arguments),
        }
        for call in captured.frame.function_calls
    ]
    return [{"type": "FunctionCallsStartedFrame", "function_calls": calls}]


def in_progress(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    frame = captured.frame
    how = {
        "arguments": _arguments(frame.arguments),
        "cancel_on_interruption": bool(frame.cancel_on_interruption),
    }
    if frame.group_id:
        how["group_id"] = str(frame.group_id)
    return [{"type": "FunctionCallInProgressFrame", **_call(frame), **how}]


def result(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    frame = captured.frame
    fields: Fields = {"type": "FunctionCallResultFrame", **_call(frame), "result": to_json(frame.result)}
    if frame.properties is not None and frame.properties.is_final is False:
        fields["properties"] = {"is_final": False}
    if getattr(frame, "error", None):
        fields |= {"settled_as": "failed", "metadata": {"error": str(frame.error)}}
    return [fields]


def cancelled(captured: CapturedFrame, state: TranslationState) -> list[Fields]:
    return [{"type": "FunctionCallCancelFrame", **_call(captured.frame)}]


def _call(frame: Any) -> Fields:
    return {"function_name": frame.function_name, "tool_call_id": frame.tool_call_id}


def _arguments(arguments: Any) -> str:
    """Returns the arguments as JSON text, as Pipecat writes them into the message of the call."""
    return arguments if isinstance(arguments, str) else json.dumps(to_json(arguments), ensure_ascii=False)


TRANSLATORS: dict[str, Translator] = {
    "FunctionCallsStartedFrame": started,
    "FunctionCallInProgressFrame": in_progress,
    "FunctionCallResultFrame": result,
    "FunctionCallCancelFrame": cancelled,
}

"""Old names and old forms of frames, which are read as their present equivalents and never written.

Each step is a pure function of a parsed JSON object. A step returns its argument when it has nothing to do,
and a new object otherwise: no step changes what it was given.
"""

from collections.abc import Callable
from typing import Any

JsonObject = dict[str, Any]
Step = Callable[[JsonObject], JsonObject]


def upcast(frame: JsonObject) -> JsonObject:
    """The frame as this release writes it. Accepts any JSON object and never fails: an object that is no frame stays
    one, and the decoder says why. A second application changes nothing. A frame of a version above 1 keeps its form,
    which is not known here.
    """
    steps = _ANY_VERSION if _has_newer_version(frame) else _ANY_VERSION + _FIRST_VERSION
    for step in steps:
        frame = step(frame)
    return frame


def _has_newer_version(frame: JsonObject) -> bool:
    version = frame.get("v", 1)
    return isinstance(version, int) and version > 1


def number_is_no_id(frame: JsonObject) -> JsonObject:
    """A number as `id` reads as no `id`: it counts frames of one process and starts again with the next."""
    number = frame.get("id")
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        return _without(frame, "id")
    return frame


def messages_frame(frame: JsonObject) -> JsonObject:
    """`LLMMessagesFrame`, a conversation to be run, reads as `LLMMessagesUpdateFrame` with `run_llm` true."""
    if frame.get("type") == "LLMMessagesFrame":
        return {**frame, "type": "LLMMessagesUpdateFrame", "run_llm": True}
    return frame


def openai_context_frame(frame: JsonObject) -> JsonObject:
    """`OpenAILLMContextFrame`, a context to be run, reads as `LLMContextFrame` with `run_llm` true."""
    if frame.get("type") == "OpenAILLMContextFrame":
        return {**frame, "type": "LLMContextFrame", "run_llm": True}
    return frame


def openai_timestamp_frame(frame: JsonObject) -> JsonObject:
    """`OpenAILLMContextAssistantTimestampFrame` reads as `LLMContextAssistantTimestampFrame`."""
    if frame.get("type") == "OpenAILLMContextAssistantTimestampFrame":
        return {**frame, "type": "LLMContextAssistantTimestampFrame"}
    return frame


def start_interruption_frame(frame: JsonObject) -> JsonObject:
    """`StartInterruptionFrame` reads as `InterruptionFrame`."""
    if frame.get("type") == "StartInterruptionFrame":
        return {**frame, "type": "InterruptionFrame"}
    return frame


def result_with_call_id(frame: JsonObject) -> JsonObject:
    """The `call_id` of a `FunctionCallResultFrame` reads as its `tool_call_id`, unless it has one: null is none,
    because some programs write every field."""
    if _is_result(frame) and "call_id" in frame and frame.get("tool_call_id") is None:
        return {**_without(frame, "call_id"), "tool_call_id": frame["call_id"]}
    return frame


def result_with_error(frame: JsonObject) -> JsonObject:
    """The `error` of a `FunctionCallResultFrame` reads as its result `{"error": ...}`,
    unless it has one: null is none here, too (R3.2)."""
    if _is_result(frame) and frame.get("error") is not None and frame.get("result") is None:
        return {**_without(frame, "error"), "result": {"error": frame["error"]}}
    return frame


def _is_result(frame: JsonObject) -> bool:
    return frame.get("type") == "FunctionCallResultFrame"


def _without(frame: JsonObject, key: str) -> JsonObject:
    return {name: value for name, value in frame.items() if name != key}


_ANY_VERSION: tuple[Step, ...] = (number_is_no_id,)
_FIRST_VERSION: tuple[Step, ...] = (
    messages_frame,
    openai_context_frame,
    openai_timestamp_frame,
    start_interruption_frame,
    result_with_call_id,
    result_with_error,
)

STEPS = _ANY_VERSION + _FIRST_VERSION
"""All steps, in the order in which they are applied. Their docstrings appear in the frame reference."""

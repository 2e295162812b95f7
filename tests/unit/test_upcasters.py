"""Old names and old forms of frames are read as their current meaning."""

import copy
import json
from typing import Any

import pytest

from frameledger import upcasters
from frameledger.frames import FRAME_TYPES, frame_from_object, parse_frame

OLD_TO_NEW = [
    pytest.param(
        {"type": "LLMMessagesFrame", "messages": [{"role": "user", "content": "Hi"}]},
        {"type": "LLMMessagesUpdateFrame", "messages": [{"role": "user", "content": "Hi"}], "run_llm": True},
        id="messages-frame-is-an-update-that-runs",
    ),
    pytest.param(
        {"type": "LLMMessagesFrame", "messages": [], "run_llm": False},
        {"type": "LLMMessagesUpdateFrame", "messages": [], "run_llm": True},
        id="messages-frame-always-runs",
    ),
    pytest.param(
        {"type": "OpenAILLMContextFrame", "context": {"messages": []}, "id": "c1"},
        {"type": "LLMContextFrame", "context": {"messages": []}, "id": "c1", "run_llm": True},
        id="openai-context-frame-is-a-context-that-runs",
    ),
    pytest.param(
        {"type": "OpenAILLMContextAssistantTimestampFrame", "timestamp": "2024-05-01T10:00:00Z"},
        {"type": "LLMContextAssistantTimestampFrame", "timestamp": "2024-05-01T10:00:00Z"},
        id="openai-timestamp",
    ),
    pytest.param(
        {"type": "StartInterruptionFrame", "metadata": {"a": 1}},
        {"type": "InterruptionFrame", "metadata": {"a": 1}},
        id="start-interruption",
    ),
    pytest.param(
        {"type": "FunctionCallResultFrame", "call_id": "c", "function_name": "f", "result": 1},
        {"type": "FunctionCallResultFrame", "tool_call_id": "c", "function_name": "f", "result": 1},
        id="call-id-becomes-tool-call-id",
    ),
    pytest.param(
        {"type": "FunctionCallResultFrame", "call_id": "c", "function_name": "f", "error": "boom"},
        {
            "type": "FunctionCallResultFrame",
            "tool_call_id": "c",
            "function_name": "f",
            "result": {"error": "boom"},
        },
        id="error-becomes-a-result",
    ),
    pytest.param(
        {
            "type": "FunctionCallResultFrame",
            "tool_call_id": "c",
            "function_name": "f",
            "result": None,
            "error": "boom",
        },
        {
            "type": "FunctionCallResultFrame",
            "tool_call_id": "c",
            "function_name": "f",
            "result": {"error": "boom"},
        },
        marks=pytest.mark.regression("fault 135"),
        id="error-outranks-null",
    ),
    pytest.param(
        {
            "type": "FunctionCallResultFrame",
            "call_id": "c",
            "tool_call_id": None,
            "function_name": "f",
            "result": 1,
        },
        {"type": "FunctionCallResultFrame", "tool_call_id": "c", "function_name": "f", "result": 1},
        marks=pytest.mark.regression("fault 141"),
        id="call-id-outranks-null",
    ),
    pytest.param({"type": "LLMRunFrame", "id": 17}, {"type": "LLMRunFrame"}, id="counter-is-no-id"),
    pytest.param({"type": "LLMRunFrame", "id": 1.5}, {"type": "LLMRunFrame"}, id="fraction-is-no-id"),
    pytest.param({"type": "Later", "v": 2, "id": 17}, {"type": "Later", "v": 2}, id="counter-of-any-version"),
]

UNCHANGED = [
    pytest.param({}, id="empty"),
    pytest.param({"type": "LLMRunFrame", "id": "r1"}, id="text-id"),
    pytest.param({"type": "LLMRunFrame", "id": True}, id="boolean-id-is-malformed-not-a-number"),
    pytest.param({"type": "LLMRunFrame", "id": None}, id="null-id"),
    pytest.param({"type": ["LLMMessagesFrame"]}, id="type-is-no-text"),
    pytest.param({"type": "LLMMessagesFrame", "v": 2, "messages": []}, id="newer-version-of-an-old-name"),
    pytest.param({"type": "FunctionCallResultFrame", "error": None}, id="no-error-is-no-result"),
    pytest.param(
        {"type": "FunctionCallResultFrame", "tool_call_id": "new", "call_id": "old", "result": 1},
        id="tool-call-id-outranks-call-id",
    ),
    pytest.param(
        {"type": "FunctionCallResultFrame", "tool_call_id": "c", "result": False, "error": "boom"},
        id="result-outranks-error",
    ),
    pytest.param({"type": "FunctionCallCancelFrame", "call_id": "c"}, id="call-id-of-another-frame"),
]


@pytest.mark.parametrize(("old", "new"), OLD_TO_NEW)
def test_an_old_frame_reads_as_its_replacement(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert upcasters.upcast(old) == new


@pytest.mark.parametrize("frame", UNCHANGED)
def test_what_is_not_old_stays_as_it_is(frame: dict[str, Any]) -> None:
    assert upcasters.upcast(frame) == frame


@pytest.mark.parametrize("frame", [case.values[0] for case in [*OLD_TO_NEW, *UNCHANGED]], ids=str)
def test_upcasting_twice_changes_nothing_more_and_never_its_argument(frame: dict[str, Any]) -> None:
    before = copy.deepcopy(frame)
    once = upcasters.upcast(frame)
    assert upcasters.upcast(once) == once
    assert frame == before


@pytest.mark.parametrize(
    ("old", "new"), [case.values for case in OLD_TO_NEW if case.values[0]["type"] != "Later"], ids=str
)
def test_every_replacement_is_a_frame_of_today(old: dict[str, Any], new: dict[str, Any]) -> None:
    parsed = frame_from_object(upcasters.upcast(old))
    assert type(parsed) is FRAME_TYPES[new["type"]]
    assert parsed == parse_frame(json.dumps(new))


def test_no_step_is_taken_for_a_frame_that_has_a_class() -> None:
    old_names = {"LLMMessagesFrame", "OpenAILLMContextFrame", "OpenAILLMContextAssistantTimestampFrame"}
    assert not (old_names | {"StartInterruptionFrame"}) & FRAME_TYPES.keys()

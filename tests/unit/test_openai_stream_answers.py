"""Streams of servers that imitate OpenAI's API, with their differences."""

import pytest

from frameledger.frames import FunctionCallsStartedFrame, LLMTextFrame, LLMThoughtTextFrame
from frameledger_services.providers.openai_answer import OpenAIAnswer


def frames_of(*deltas, finish="tool_calls"):
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=tuple(calls)))
    frames = []
    for delta in (*deltas, {}):
        stated = None if delta else finish
        frames += answer.take({"choices": [{"index": 0, "delta": delta, "finish_reason": stated}]})
    return [*frames, *answer.end()]


def calls_of(*deltas):
    announced = [frame for frame in frames_of(*deltas) if isinstance(frame, FunctionCallsStartedFrame)]
    return [(call.tool_call_id, call.function_name, call.arguments) for call in announced[0].function_calls]


def piece(name=None, arguments=None, **more):
    return {"function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.regression("worker 4")
@pytest.mark.parametrize("pieces", [list, lambda whole: whole[0]], ids=["a list", "one object"])
def test_arguments_and_calls_that_are_objects_are_taken(pieces):
    whole = pieces([piece("pay", {"amount": 5, "to": "Zoë"}, index=0, id="a")])
    assert calls_of({"tool_calls": whole}) == [("a", "pay", '{"amount":5,"to":"Zoë"}')]


@pytest.mark.regression("worker 4")
def test_arguments_that_are_an_empty_object_are_no_arguments():
    assert calls_of({"tool_calls": [piece("now", {}, index=0, id="a")]}) == [("a", "now", "{}")]


@pytest.mark.regression("worker 4")
def test_a_content_of_parts_is_its_text_and_its_thoughts():
    frames = frames_of(
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm. "}]}]},
        {"content": [{"type": "thinking", "thinking": "Yes."}, {"type": "text", "text": "Hello"}]},
        {"content": [{"type": "reference", "reference_ids": [1]}, {"type": "text", "text": " you"}]},
        {"content": "."},
        finish="stop",
    )
    assert [frame.text for frame in frames if isinstance(frame, LLMThoughtTextFrame)] == ["Hm. ", "Yes."]
    assert [frame.text for frame in frames if isinstance(frame, LLMTextFrame)] == ["Hello", " you", "."]
    assert [frame.type for frame in frames].count("LLMThoughtEndFrame") == 1

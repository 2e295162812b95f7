"""Reasoning that a compatible server streams is sent back in later requests, in the same field."""

import pytest

from frameledger.context import LLMContext
from frameledger.fold import Conversation, fold
from frameledger.frames import (
    AnyFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
)
from frameledger.record import decode
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.openai_answer import OpenAIAnswer
from frameledger_services.providers.request import encoded

AT_DEEPSEEK = "https://api.deepseek.com"
TOOLS = [{"name": "f", "parameters": {"type": "object"}}]


def calling(*ids):
    calls = [
        {"index": index, "id": one, "function": {"name": "f", "arguments": "{}"}}
        for index, one in enumerate(ids)
    ]
    return {"tool_calls": calls}


def answered(*deltas, ended=True):
    """The frames of an answer of these deltas."""
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=tuple(calls)))
    frames: list[AnyFrame] = [LLMFullResponseStartFrame()]
    for delta in deltas:
        frames += answer.take({"choices": [{"delta": delta}]})
    if ended:
        frames += answer.take({"choices": [{"delta": {}, "finish_reason": "stop"}]})
        frames += answer.end()
    return frames


def settled(*ids):
    for one in ids:
        about = {"function_name": "f", "tool_call_id": one}
        yield FunctionCallInProgressFrame(**about, arguments={}, cancel_on_interruption=True)
    for one in ids:
        yield FunctionCallResultFrame(function_name="f", tool_call_id=one, result=1)


def asked(text="Weather?"):
    return LLMMessagesAppendFrame(messages=[{"role": "user", "content": text}])


def context_of(*frames, tools=TOOLS):
    stored = [decode(encoded(one.model_dump(mode="json", exclude_none=True))) for one in frames]
    return LLMContext(fold(stored, Conversation.new("c")).messages, tools)


def returned(context, base_url=AT_DEEPSEEK, **options):
    """What the assistant's messages of a request have of reasoning."""
    body = OpenAILLMService(api_key="k", base_url=base_url, **options).request(context).body
    return [
        {name: value for name, value in message.items() if name.startswith("reasoning")}
        for message in body["messages"]
        if message["role"] == "assistant"
    ]


@pytest.mark.regression("worker 86")
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_each_answer_is_sent_back_with_its_reasoning_in_the_field_that_it_came_in(field):
    context = context_of(
        asked(),
        *answered({field: "Let me"}, {field: " look."}, calling("a", "b")),
        *settled("a", "b"),
        *answered({field: "It is cold."}, {"content": "Cold."}),
        asked("Thanks."),
    )
    assert returned(context) == [{field: "Let me look."}, {field: "It is cold."}]
    # Deployed without functions from now on, it has calls in its history.
    assert returned(LLMContext(context.messages)) == [{field: "Let me look."}, {field: "It is cold."}]


def test_an_answer_that_was_interrupted_keeps_its_reasoning():
    context = context_of(
        asked(),
        *answered({"reasoning_content": "Hm."}, {"content": "It is"}, ended=False),
        InterruptionFrame(),
        asked("What?"),
        *answered({"reasoning_content": "They"}, ended=False),
        InterruptionFrame(),
        asked("Hello?"),
        *answered({"reasoning_content": "They greet."}, {"content": "Hello."}),
    )
    assert returned(context) == [{"reasoning_content": "Hm."}, {"reasoning_content": "They greet."}]


def test_reasoning_around_the_text_is_one():
    context = context_of(
        asked(),
        *answered({"reasoning": "One, "}, {"content": "Let me see."}, {"reasoning": "two."}, calling("a")),
        *settled("a"),
    )
    assert returned(context) == [{"reasoning": "One, two."}]


def test_reasoning_that_nothing_followed_is_of_no_later_answer():
    context = context_of(
        asked(),
        *answered({"reasoning": "I say nothing."}),
        asked("Hello?"),
        *answered({"reasoning": "They greet."}, {"content": "Hello."}),
        *answered({"content": "Hello again."}),
    )
    assert returned(context) == [{"reasoning": "They greet."}, {}]


def test_answers_without_reasoning_have_the_blank_field_that_kimi_insists_on():
    unthought = [asked(), *answered(calling("a")), *settled("a")]
    assert returned(context_of(*unthought)) == [{}]
    thought = answered({"reasoning_content": "Hm."}, {"content": "Cold."})
    assert returned(context_of(*unthought, *thought)) == [
        {"reasoning_content": ""},
        {"reasoning_content": "Hm."},
    ]


def test_who_needs_no_reasoning_gets_none():
    thinking = answered({"reasoning_content": "Hm."}, {"content": "Cold."})
    context = context_of(asked(), *thinking)
    assert returned(context) == [{"reasoning_content": "Hm."}]
    assert returned(context, base_url=None) == [{}]
    assert returned(context, base_url="https://api.mistral.ai/v1") == [{}]
    assert returned(context, takes_extra_fields=False) == [{}]
    assert b"Hm." not in AnthropicLLMService(api_key="k").request(context).content
    # Without functions no server asks for it.
    assert returned(context_of(asked(), *thinking, tools=[])) == [{}]


def test_whoever_reads_the_messages_of_openai_gets_none_that_its_api_refuses():
    context = context_of(asked(), *answered({"reasoning": "Hm."}, {"content": "Cold."}))
    assert len(context.messages) == 3
    assert ["role" in one for one in context.get_messages("openai")] == [True] * 2


def test_parts_of_a_content_are_thoughts_that_are_not_stored():
    start, *_, end = [
        one
        for one in answered({"content": [{"type": "thinking", "thinking": "Hm."}]}, {"content": "Cold."})
        if isinstance(one, LLMThoughtStartFrame | LLMThoughtEndFrame)
    ]
    assert (start.append_to_context, start.llm, end.signature) == (False, "openai", None)


@pytest.mark.parametrize(
    "signature", [None, "x", {}, {"field": None}, {"field": "role"}, {"field": "content"}]
)
def test_what_a_client_wrote_in_place_of_it_changes_no_request(signature):
    plain = context_of(asked(), *answered({"content": "Cold."}))
    thought = {"type": "thought", "text": "Hm.", "signature": signature}
    own = OpenAILLMService().create_llm_specific_message(thought)
    service = OpenAILLMService(base_url=AT_DEEPSEEK)
    assert (
        service.request(LLMContext([own, *plain.messages], TOOLS)).content
        == service.request(LLMContext(plain.messages, TOOLS)).content
    )


def fresh(frames, prefix="unique"):
    """The frames, with the calls under other ids, as the inference service gives them."""
    for frame in frames:
        if isinstance(frame, FunctionCallsStartedFrame):
            calls = [
                one.model_copy(update={"tool_call_id": f"{prefix}-{place}"})
                for place, one in enumerate(frame.function_calls)
            ]
            yield frame.model_copy(update={"function_calls": tuple(calls)})
        else:
            yield frame


def detail(kind, index=0, **fields):
    return {"type": f"reasoning.{kind}", "index": index, "format": "some-v1", **fields}


AT_OPENROUTER = "https://openrouter.ai/api/v1"


@pytest.mark.regression("worker 127")
def test_the_parts_of_a_models_reasoning_come_back_whole_with_the_call_that_they_name():
    pieces = [
        detail("text", text="Let me"),
        detail("text", text=" look.", signature=None),
        detail("text", signature="c2ln"),
    ]
    sealed = detail("encrypted", index=1, id="tool_f_zCnBHVgbDkHcHTPIZKQY", data="c2VhbGVk")
    context = context_of(
        asked(),
        *fresh(
            answered(
                {"reasoning": "Let me", "reasoning_details": pieces[:1]},
                {"reasoning": " look.", "reasoning_details": pieces[1:]},
                {"content": "I look."},
                calling("tool_f_zCnBHVgbDkHcHTPIZKQY") | {"reasoning_details": [sealed]},
            )
        ),
        *settled("unique-0"),
        *answered({"content": "Cold."}),
        asked("Thanks."),
    )
    whole = detail("text", text="Let me look.", signature="c2ln")
    assert returned(context, AT_OPENROUTER) == [
        {"reasoning_details": [whole, {**sealed, "id": "unique-0"}]},
        {},
    ]
    assert returned(context, "https://api.openai.com/v1") == [{}, {}]


def test_sealed_parts_stay_apart_and_summaries_are_put_together_by_their_place():
    parts = [
        detail("summary", summary="One, "),
        detail("summary", summary="two."),
        detail("encrypted", index=1, data="YQ=="),
        detail("encrypted", index=1, data="Yg=="),
        detail("summary", index=2, summary="Three."),
    ]
    context = context_of(
        asked(),
        *answered(*({"reasoning_details": [part]} for part in parts), calling("a")),
        *settled("a"),
    )
    assert returned(context) == [
        {"reasoning_details": [detail("summary", summary="One, two."), *parts[2:]]},
    ]


def test_parts_that_are_no_json_are_left_out():
    parts = [detail("text", text="Hm.", at=float("nan"))]
    context = context_of(
        asked(), *answered({"reasoning": "Hm.", "reasoning_details": parts}, {"content": "Hello."})
    )
    assert returned(context) == [{"reasoning": "Hm."}]


def test_parts_of_an_answer_that_said_nothing_are_of_no_later_answer():
    context = context_of(
        asked(),
        *answered({"reasoning_details": [detail("text", text="I say nothing.")]}),
        asked("Hello?"),
        *answered({"reasoning": "They greet."}, {"content": "Hello."}),
    )
    assert returned(context) == [{"reasoning": "They greet."}]

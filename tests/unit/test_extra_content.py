"""What a compatible server adds to the calls of an answer comes back with them in later requests."""

import pytest

from frameledger.context import LLMContext
from frameledger.fold import Conversation, fold
from frameledger.frames import (
    AnyFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
)
from frameledger.record import decode
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.openai_answer import OpenAIAnswer
from frameledger_services.providers.request import encoded

SIGNED = {"google": {"thought_signature": "c2ln+/=="}}
AT_GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai/"


def piece(name, arguments, index=0, call_id="", **more):
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}, **more}


def answered(*calls):
    """The frames of an answer with these calls."""
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=tuple(calls)))
    frames = answer.take({"choices": [{"delta": {"content": "Let me look."}}]})
    frames += answer.take({"choices": [{"delta": {"tool_calls": list(calls)}}]})
    frames += answer.take({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    return [*frames, *answer.end()]


def context_of(*rounds):
    """The context after rounds of calls that each settle; of `starts` the order in which the calls started."""
    frames: list[AnyFrame] = [LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Weather?"}])]
    for number, (calls, starts) in enumerate(rounds):
        said = answered(*calls)
        [announced] = [one for one in said if isinstance(one, FunctionCallsStartedFrame)]
        made = [
            one.model_copy(update={"tool_call_id": f"unique-{number}-{place}"})
            for place, one in enumerate(announced.function_calls)
        ]
        said = [
            one.model_copy(update={"function_calls": tuple(made)}) if one is announced else one
            for one in said
        ]
        frames += [LLMFullResponseStartFrame(), *said]
        for place in starts:
            about = {"function_name": made[place].function_name, "tool_call_id": made[place].tool_call_id}
            frames.append(
                FunctionCallInProgressFrame(
                    **about, arguments=made[place].arguments, cancel_on_interruption=True
                )
            )
        for place in starts:
            about = {"function_name": made[place].function_name, "tool_call_id": made[place].tool_call_id}
            frames.append(FunctionCallResultFrame(**about, result=place))
    stored = [decode(encoded(one.model_dump(mode="json", exclude_none=True))) for one in frames]
    return LLMContext(fold(stored, Conversation.new("c")).messages)


def calls_sent(context, base_url=AT_GOOGLE):
    body = OpenAILLMService(api_key="k", base_url=base_url).request(context).body
    return [
        [(one["function"]["arguments"], one.get("extra_content")) for one in message["tool_calls"]]
        for message in body["messages"]
        if message.get("tool_calls")
    ]


@pytest.mark.regression("worker 45")
def test_each_call_is_sent_back_with_what_its_server_added():
    first = [piece("f", '{"a": 1}', extra_content=SIGNED)]
    other = {"google": {"thought_signature": "b3RoZXI="}}
    second = [piece("f", '{"a": 1}', extra_content=other)]
    assert calls_sent(context_of((first, [0]), (second, [0]))) == [
        [('{"a": 1}', SIGNED)],
        [('{"a": 1}', other)],
    ]


def test_calls_that_started_in_another_order_are_sent_in_that_of_the_model():
    calls = [
        piece("f", '{"a": 1}', 0, "call_1", extra_content=SIGNED),
        piece("f", '{"a": 2}', 1, "call_2"),
    ]
    assert calls_sent(context_of((calls, [1, 0]))) == [[('{"a": 1}', SIGNED), ('{"a": 2}', None)]]


def test_a_signed_call_that_never_started_leaves_the_others_as_they_are():
    calls = [
        piece("f", '{"a": 1}', 0, "call_1", extra_content=SIGNED),
        piece("f", '{"a": 2}', 1, "call_2"),
    ]
    later = [piece("f", '{"a": 1}')]
    assert calls_sent(context_of((calls, [1]), (later, [0]))) == [[('{"a": 2}', None)], [('{"a": 1}', None)]]


def test_openai_itself_and_other_providers_get_nothing_of_it():
    context = context_of(([piece("f", "{}", extra_content=SIGNED)], [0]))
    assert calls_sent(context, base_url=None) == [[("{}", None)]]
    assert b"signature" not in AnthropicLLMService(api_key="k").request(context).content


@pytest.mark.regression("worker 52")
def test_whoever_reads_the_messages_of_openai_gets_none_that_its_api_refuses():
    """Frameworks that read a stored context, such as Pipecat, send a provider's own messages to it as they are."""
    context = context_of(([piece("f", "{}", extra_content=SIGNED)], [0]))
    assert len(context.messages) == 5
    assert ["role" in one for one in context.get_messages("openai")] == [True] * 4


@pytest.mark.parametrize("added", [None, {}, [], "x", {"a": float("nan")}, {"a": [float("inf")]}])
def test_a_server_that_adds_nothing_leaves_no_thought(added):
    types = [one.type for one in answered(piece("f", "{}", extra_content=added))]
    assert types == ["LLMTextFrame", "FunctionCallsStartedFrame", "LLMFullResponseEndFrame"]


@pytest.mark.parametrize("recorded", [None, 7, [{"call": 7}], [None], [{"call": "x", "extra_content": 7}]])
def test_what_a_client_wrote_in_place_of_it_changes_no_request(recorded):
    thought = {"type": "thought", "text": "", "signature": {"extra_content": recorded}}
    plain = context_of(([piece("f", "{}")], [0]))
    context = LLMContext([OpenAILLMService().create_llm_specific_message(thought), *plain.messages])
    assert calls_sent(context) == calls_sent(plain) == [[("{}", None)]]

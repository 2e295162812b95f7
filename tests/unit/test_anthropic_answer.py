"""Events of Anthropic and of servers that are compatible with it, as frames."""

import pytest

from frameledger.context import LLMContext
from frameledger.fold import Conversation, fold
from frameledger.frames import (
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseStartFrame,
    LLMThoughtStartFrame,
)
from frameledger.record import decode
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.anthropic_answer import AnthropicAnswer
from frameledger_services.providers.errors import IncompleteCallError
from frameledger_services.providers.request import encoded


def answered(*events):
    answer = AnthropicAnswer(
        "anthropic", lambda calls: FunctionCallsStartedFrame(function_calls=tuple(calls))
    )
    return [*(frame for event in events for frame in answer.take(event)), *answer.end()]


@pytest.mark.regression("worker 106")
@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ([], '{"eur":5}'),
        ([""], '{"eur":5}'),
        # Where arguments are streamed, those at the beginning stand for none yet.
        (["", '{"eur"', ": 6}"], '{"eur": 6}'),
    ],
)
def test_arguments_at_the_beginning_of_a_block_count_until_others_come(pieces, arguments):
    call = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"eur": 5}}
    started, _ = answered(
        {"type": "content_block_start", "index": 0, "content_block": call},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    assert [(call.function_name, call.arguments) for call in started.function_calls] == [("pay", arguments)]


def ended_in_a_call(stop_reason, *pieces):
    call = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return answered(
        {"type": "content_block_start", "index": 0, "content_block": call},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "message_delta", "delta": {"stop_reason": stop_reason}},
    )


@pytest.mark.regression("worker 150")
@pytest.mark.parametrize("arguments", [{"eur": 5}, '{"eur":5}'], ids=["object", "text"])
def test_arguments_at_the_beginning_of_several_blocks_of_one_place_are_each_calls_own(arguments):
    started, _ = answered(
        *(
            {
                "type": "content_block_start",
                "content_block": {"type": "tool_use", "id": call_id, "name": "pay", "input": arguments},
            }
            for call_id in ("toolu_1", "toolu_2")
        ),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    assert [call.arguments for call in started.function_calls] == ['{"eur":5}'] * 2


@pytest.mark.regression("worker 114")
def test_a_call_without_arguments_is_whole_if_the_server_ends_with_a_word_of_its_own():
    announced, _ = ended_in_a_call("tool_calls")
    assert announced.function_calls[0].arguments == "{}"
    for reason, pieces in (("max_tokens", ()), ("tool_calls", ('{"amount": 1',))):
        with pytest.raises(IncompleteCallError):
            ended_in_a_call(reason, *pieces)


@pytest.mark.regression("worker 117")
@pytest.mark.parametrize("following", [[{"type": "tool_use", "id": "toolu_1", "name": "pay"}], []])
def test_a_thought_ends_with_the_next_block_or_the_answer_if_the_server_does_not_say_so(following):
    blocks = [{"type": "thinking", "thinking": "Pay.", "signature": "s"}, *following]
    frames = answered(
        *(
            {"type": "content_block_start", "index": index, "content_block": block}
            for index, block in enumerate(blocks)
        ),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    )
    _, said, ended, *calls, _ = frames
    assert (said.text, ended.signature) == ("Pay.", "s")
    assert [type(one) for one in calls] == [FunctionCallsStartedFrame] * len(following)


def thinking(index, signature):
    block = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    yield {"type": "content_block_start", "index": index, "content_block": block}
    delta = {"type": "signature_delta", "signature": signature}
    yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def block(index, **fields):
    yield {"type": "content_block_start", "index": index, "content_block": fields}
    yield {"type": "content_block_stop", "index": index}


def searching(index):
    return block(index, type="server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "q"})


def saying(index):
    return block(index, type="text", text="Let me look.")


@pytest.mark.regression("worker 125")
@pytest.mark.parametrize("between", [searching, saying])
def test_thoughts_go_back_in_the_rows_that_they_came_in(between):
    said = answered(
        *thinking(0, "YQ=="),
        *thinking(1, "Yg=="),
        *between(2),
        *thinking(3, "Yw=="),
        *block(4, type="redacted_thinking", data="sealed"),
        *block(5, type="tool_use", id="toolu_1", name="f", input={}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    )
    called = {"function_name": "f", "tool_call_id": "toolu_1"}
    frames = [
        LLMFullResponseStartFrame(),
        *said,
        FunctionCallInProgressFrame(**called, arguments={}, cancel_on_interruption=True),
        FunctionCallResultFrame(**called, result=1),
    ]
    stored = [decode(encoded(one.model_dump(mode="json", exclude_none=True))) for one in frames]
    context = LLMContext(fold(stored, Conversation.new("c")).messages)
    [assistant] = [
        one for one in AnthropicLLMService().request(context).body["messages"] if one["role"] == "assistant"
    ]
    kinds = [one["type"] for one in assistant["content"]]
    # The whole of the first row, and nothing that was in another.
    assert [one["signature"] for one in assistant["content"] if one["type"] == "thinking"] == ["YQ==", "Yg=="]
    assert kinds[:2] == ["thinking", "thinking"]
    assert kinds[-1] == "tool_use"
    assert "redacted_thinking" not in kinds
    # All of them are on the log.
    assert sum(isinstance(one, LLMThoughtStartFrame) for one in said) == 4


def test_thoughts_behind_the_first_words_are_the_first_row():
    said = answered(
        *saying(0),
        *thinking(1, "YQ=="),
        *thinking(2, "Yg=="),
        *saying(3),
        *thinking(4, "Yw=="),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    )
    starts = [one.append_to_context for one in said if isinstance(one, LLMThoughtStartFrame)]
    assert starts == [True, True, False]

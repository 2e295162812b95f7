"""Events of Anthropic and of servers that are compatible with it, as frames."""

import pytest

from frameledger.frames import FunctionCallsStartedFrame
from frameledger_services.providers.anthropic_answer import AnthropicAnswer
from frameledger_services.providers.errors import IncompleteCallError


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

"""Invalid events of a server that imitates an API are read as far as possible, and break no answer."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger.frames import FunctionCallsStartedFrame, encode_frame
from frameledger_services.providers.anthropic_answer import AnthropicAnswer
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.openai_answer import OpenAIAnswer

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(allow_nan=False), st.text(max_size=3)
)


def part(**fields):
    """Returns an object with some of these fields, each with a valid or an arbitrary value."""
    return st.one_of(st.fixed_dictionaries({}, optional=fields), SCALARS, st.lists(SCALARS, max_size=2))


WORDS = st.one_of(st.sampled_from(["a", "{}", '{"x": 1}', ""]), SCALARS)
USAGE = part(prompt_tokens=SCALARS, input_tokens=SCALARS, completion_tokens_details=SCALARS)
FUNCTION = part(name=WORDS, arguments=WORDS)
CALLS = st.lists(part(index=SCALARS, id=WORDS, function=FUNCTION), max_size=2)
DELTA = part(content=WORDS, refusal=WORDS, reasoning_content=WORDS, tool_calls=CALLS)
CHOICE = part(index=SCALARS, delta=DELTA, finish_reason=st.one_of(st.sampled_from(["stop", "length"]), WORDS))
CHUNK = st.fixed_dictionaries({}, optional={"choices": st.lists(CHOICE, max_size=2), "usage": USAGE})

BLOCKS = st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"])
DELTAS = st.sampled_from(["text_delta", "thinking_delta", "signature_delta", "input_json_delta", "new_delta"])
EVENTS = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
)
EVENT = st.fixed_dictionaries(
    {"type": EVENTS},
    optional={
        "index": SCALARS,
        "message": part(usage=USAGE),
        "content_block": part(type=BLOCKS, text=WORDS, thinking=WORDS, id=WORDS, name=WORDS, input=WORDS),
        "delta": part(
            type=DELTAS,
            text=WORDS,
            thinking=WORDS,
            signature=WORDS,
            partial_json=WORDS,
            stop_reason=st.one_of(st.sampled_from(["end_turn", "tool_use", "max_tokens"]), WORDS),
        ),
        "usage": USAGE,
    },
)


def announce(calls):
    return FunctionCallsStartedFrame(function_calls=tuple(calls))


@pytest.mark.parametrize(
    ("answer", "event"), [(OpenAIAnswer, CHUNK), (AnthropicAnswer, EVENT)], ids=["openai", "anthropic"]
)
@given(data=st.data())
def test_an_answer_is_frames_or_an_error_of_ours(data, answer, event):
    answer = answer("p", announce)
    frames = [frame for one in data.draw(st.lists(event, max_size=6)) for frame in answer.take(one)]
    with suppress(ProviderError):
        frames += answer.end()
        assert frames[-1].type == "LLMFullResponseEndFrame"
    assert all(encode_frame(frame) for frame in frames)


HUGE = 10**30


@pytest.mark.regression("worker 58")
@pytest.mark.parametrize(
    ("answer", "event"),
    [
        (
            OpenAIAnswer,
            {
                "choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": HUGE},
            },
        ),
        (
            AnthropicAnswer,
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": HUGE}},
        ),
        (
            AnthropicAnswer,
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"input_tokens": 2**63 - 1, "cache_read_input_tokens": 2**63 - 1},
            },
        ),
    ],
)
def test_counts_that_no_frame_can_hold_are_as_good_as_none_and_break_no_answer(answer, event):
    answer = answer("p", announce)
    frames = [*answer.take(event), *answer.end()]
    assert frames[-1].type == "LLMFullResponseEndFrame"
    assert encode_frame(frames[-1])

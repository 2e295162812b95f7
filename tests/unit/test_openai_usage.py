"""The tokens that servers with OpenAI's API report, whatever they include in the completion's."""

import pytest

from frameledger.frames import FunctionCallsStartedFrame
from frameledger_services.providers.openai_answer import OpenAIAnswer


def used(prompt, completion, total, reasoning=None):
    """What an answer has read, written and thought by this report."""
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=tuple(calls)))
    details = {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}
    answer.take({"choices": [], "usage": counts | details})
    return answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.reasoning_tokens


@pytest.mark.regression("worker 132")
def test_thoughts_that_a_server_counts_apart_are_written_too():
    # As xAI and as Gemini report them.
    assert used(10120, 1499, 14428, reasoning=2809) == (10120, 4308, 2809)
    assert used(20, 198, 623) == (20, 603, None)


@pytest.mark.regression("worker 132")
def test_usage_may_stand_in_the_choice_and_have_other_words_for_the_cache():
    counts = {"prompt_tokens": 19, "completion_tokens": 21, "total_tokens": 40}
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=tuple(calls)))
    answer.take(
        {"choices": [{"delta": {}, "finish_reason": "stop", "usage": counts | {"cached_tokens": 10}}]}
    )
    assert (answer.usage.input_tokens, answer.usage.cache_read_tokens) == (19, 10)
    deepseek = {"prompt_cache_hit_tokens": 16, "prompt_cache_miss_tokens": 3}
    answer.take({"choices": [], "usage": counts | deepseek})
    assert answer.usage.cache_read_tokens == 16


@pytest.mark.parametrize("total", [700, None, 0, "700"])
def test_thoughts_that_are_among_the_completions_tokens_are_counted_once(total):
    assert used(500, 200, total, reasoning=150) == (500, 200, 150)


def test_a_count_that_is_missing_is_made_up_from_no_other():
    assert used(None, 200, 700) == (None, 200, None)
    assert used(500, None, 700) == (500, None, None)

"""The end of an answer of OpenAI's API, by finish reason, also from compatible servers."""

import pytest

from frameledger.frames import FunctionCallsStartedFrame
from frameledger_services.providers.errors import IncompleteCallError, ProviderUnavailableError
from frameledger_services.providers.openai_answer import OpenAIAnswer


def ended(reason, arguments=None):
    """The frames of the end of an answer, which calls a function with these arguments, if any are given."""
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=calls))
    if arguments is not None:
        call = {"index": 0, "id": "x", "function": {"name": "pay", "arguments": arguments}}
        assert answer.take({"choices": [{"delta": {"tool_calls": [call]}}]}) == []
    answer.take({"choices": [{"delta": {}, "finish_reason": reason}]})
    return list(answer.end())


@pytest.mark.regression("worker 34")
@pytest.mark.parametrize("reason", ["length", "model_length", "a word of a server's own"])
def test_arguments_that_were_cut_off_are_no_call_whatever_the_server_calls_it(reason):
    with pytest.raises(IncompleteCallError):
        ended(reason, '{"amount": 1')


@pytest.mark.regression("worker 34")
@pytest.mark.parametrize("reason", ["error", "abort", "insufficient_system_resource"])
def test_a_server_that_did_not_get_to_the_end_has_broken_off(reason):
    with pytest.raises(ProviderUnavailableError, match=reason):
        ended(reason, '{"amount": 1}')


@pytest.mark.regression("worker 167")
def test_calls_are_made_without_a_finish_reason_if_they_are_whole():
    def done(arguments):
        answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=calls))
        call = {"index": 0, "id": "x", "function": {"name": "pay", "arguments": arguments}}
        answer.take({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]})
        answer.complete = True
        return list(answer.end())

    announced, end = done('{"amount": 1}')
    assert (announced.function_calls[0].arguments, end.finish_reason) == ('{"amount": 1}', None)
    with pytest.raises(IncompleteCallError):
        done('{"amount": 1')


@pytest.mark.regression("worker 160")
@pytest.mark.parametrize("arguments", [None, "{}"])
def test_geminis_call_that_cannot_be_read_is_asked_for_again(arguments):
    with pytest.raises(ProviderUnavailableError, match="MALFORMED_FUNCTION_CALL"):
        ended("function_call_filter: MALFORMED_FUNCTION_CALL", arguments)


@pytest.mark.regression("worker 160")
@pytest.mark.parametrize("arguments", [None, "{}", '{"amount": 1'])
def test_geminis_filter_is_told_as_one_and_makes_no_calls(arguments):
    [end] = ended("content_filter: PROHIBITED_CONTENT", arguments)
    assert end.finish_reason == "content_filter"


@pytest.mark.parametrize(
    ("reason", "told"),
    [("stop", "stop"), ("length", "length"), ("model_length", "length"), ("a word of its own", None)],
)
def test_the_finish_reason_is_told_in_one_word_for_all(reason, told):
    [end] = ended(reason)
    assert end.finish_reason == told


def custom(reason, *pieces):
    """The frames of the end of an answer that calls a custom tool with these pieces of text."""
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=calls))
    first = {"index": 0, "id": "x", "type": "custom", "custom": {"name": "run", "input": ""}}
    for call in (first, *({"index": 0, "custom": {"input": piece}} for piece in pieces)):
        assert answer.take({"choices": [{"delta": {"tool_calls": [call]}}]}) == []
    answer.take({"choices": [{"delta": {}, "finish_reason": reason}]})
    return list(answer.end())


@pytest.mark.regression("worker 37")
def test_the_free_text_of_a_custom_tool_is_the_argument_input():
    announced, end = custom("tool_calls", 'print("', 'a")')
    [call] = announced.function_calls
    assert (call.function_name, call.arguments) == ("run", '{"input":"print(\\"a\\")"}')
    assert end.finish_reason == "tool_calls"


@pytest.mark.regression("worker 37")
def test_the_free_text_of_a_custom_tool_that_was_cut_off_is_no_call():
    with pytest.raises(IncompleteCallError, match="a call of run"):
        custom("length", "print(")


@pytest.mark.regression("worker 37")
@pytest.mark.parametrize("place", [{}, {"index": 0}])
def test_calls_of_custom_tools_at_one_place_are_told_by_their_ids(place):
    answer = OpenAIAnswer("openai", lambda calls: FunctionCallsStartedFrame(function_calls=calls))
    for id_, text in (("c1", "one"), ("c2", "two")):
        call = {**place, "id": id_, "type": "custom", "custom": {"name": "run", "input": text}}
        answer.take({"choices": [{"delta": {"tool_calls": [call]}}]})
    answer.take({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    announced, _ = answer.end()
    calls = [(call.tool_call_id, call.arguments) for call in announced.function_calls]
    assert calls == [("c1", '{"input":"one"}'), ("c2", '{"input":"two"}')]


@pytest.mark.regression("worker 34")
def test_a_call_without_arguments_is_whole_if_the_server_ends_with_a_word_of_its_own():
    announced, _ = ended("eos", "")
    assert announced.function_calls[0].arguments == "{}"
    with pytest.raises(IncompleteCallError):
        ended("length", "")


def test_arguments_that_are_bad_in_themselves_go_where_the_model_can_read_what_was_wrong():
    announced, end = ended("tool_calls", "{no json")
    assert announced.function_calls[0].arguments == "{no json"
    assert end.finish_reason == "tool_calls"

"""Tool messages of a resent history as results of calls, where a provider gives one id to several calls."""

import json

import pytest

from frameledger_services.gateway.openai import client_answers
from frameledger_services.store.client_calls import ClientCall

HI = {"role": "user", "content": "Hi"}
MORE = {"role": "user", "content": "More"}


def made(colour, tool_call_id="call_0"):
    function = {"name": "paint", "arguments": json.dumps({"colour": colour})}
    return {
        "role": "assistant",
        "tool_calls": [{"id": tool_call_id, "type": "function", "function": function}],
    }


def done(content, tool_call_id="call_0"):
    return {"role": "tool", "tool_call_id": tool_call_id, "content": content}


def call(*, waits):
    return {"call_0": ClientCall("call_0", "paint", {}, 9, waits, False, None if waits else 11, None)}


FIRST = [HI, made("blue"), done("blue it is")]
HELD = [*FIRST, MORE, made("red"), done("IN_PROGRESS")]
"""The second call of that id waits."""


def given(sent, held):
    return [value for _, value in client_answers.answered_calls(sent, held, call(waits=True))]


def test_what_an_earlier_call_of_the_id_did_is_no_result_of_the_one_that_waits():
    assert given([*FIRST, MORE, made("red")], HELD) == []
    assert given([*FIRST, MORE, made("red"), done("red it is")], HELD) == ["red it is"]


def test_a_client_that_was_not_told_of_the_second_call_gives_it_no_result():
    assert given([*FIRST, MORE], HELD) == []
    assert given(FIRST, HELD) == []


def test_a_result_without_its_call_is_that_of_the_call_that_waits():
    """A client that sends only what is new."""
    assert given([done("red it is")], HELD) == ["red it is"]


@pytest.mark.regression("gateway 137")
def test_that_a_call_is_in_progress_is_not_its_result():
    """As the history of a previous response has it, and as Pipecat sends it while a function runs."""
    assert given([*HELD, HI], HELD) == []
    assert given([*HELD, HI, done("red it is")], HELD) == ["red it is"]


def test_where_the_history_has_lost_the_first_call_the_last_one_that_was_sent_is_the_one_that_waits():
    assert given([*FIRST, MORE, made("red"), done("red it is")], HELD[4:]) == ["red it is"]


def test_a_replaced_history_has_each_call_of_one_id_with_its_own_result():
    held = [*FIRST, MORE, made("red"), done("red it is")]
    sent = [*held[:-1], done("what the client says")]
    assert client_answers.in_pairs(sent, held, call(waits=False)) == held


def test_a_call_of_the_id_that_is_not_stored_has_the_result_that_was_sent_behind_it():
    held = FIRST
    sent = [*FIRST, MORE, made("red"), done("red it is")]
    assert client_answers.in_pairs(sent, held, call(waits=False)) == sent
    assert client_answers.in_pairs(sent, [], call(waits=False)) == sent


@pytest.mark.regression("gateway 134")
@pytest.mark.parametrize(
    ("messages", "before"),
    [
        ([], []),
        ([HI, made("blue"), done("blue it is")], [True, False, False]),
        ([HI, {"role": "assistant", "tool_calls": [{"id": "call_0"}, 5]}], [False, False]),
    ],
)
def test_messages_directly_before_calls_of_these_functions_are_found(messages, before):
    assert client_answers.before_calls(messages, {"paint"}) == before
    assert not any(client_answers.before_calls(messages, {"sketch"}))

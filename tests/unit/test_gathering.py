"""The calls of one answer as one message: each rule of gathering, and the result for both providers."""

import copy

import pytest
from tests.contracts.anthropic_rules import keeps_the_rules

from frameledger import async_tool_messages
from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.anthropic_adapter import AnthropicLLMAdapter
from frameledger_services.providers.gathering import gathered
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.openai_adapter import OpenAILLMAdapter
from frameledger_services.providers.pairing import STRAY_RESULT, matched, paired


def call(*ids, content=None):
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ids]
    message = {"role": "assistant", "tool_calls": calls}
    return message if content is None else {**message, "content": content}


def result(name, content="1"):
    return {"role": "tool", "tool_call_id": name, "content": content}


def user(text):
    return {"role": "user", "content": text}


def bot(text):
    return {"role": "assistant", "content": text}


def thought(text="Hm.", signature="c2ln"):
    return LLMSpecificMessage("anthropic", {"type": "thought", "text": text, "signature": signature})


def told(*messages, of=None):
    """`of`: a letter for each message, the answer that it is of; a dot for none."""
    answers = [None if one == "." else one for one in of or "." * len(messages)]
    assert len(answers) == len(messages)
    return list(gathered(messages, answers))


def test_calls_of_one_answer_and_its_words_are_one_message():
    messages = user("a"), bot("I look."), call("x"), result("x"), call("y"), result("y")
    assert told(*messages, of=".1111.") == [
        user("a"),
        call("x", "y", content="I look."),
        result("x"),
        result("y"),
    ]


def test_calls_of_two_answers_stay_apart_with_nothing_between_them():
    messages = call("x"), result("x"), call("y"), result("y")
    assert told(*messages, of="1.2.") == list(messages)


def test_a_call_that_started_after_something_else_was_said_goes_to_its_answer():
    messages = (
        thought(),
        bot("Yes."),
        user("And?"),
        call("x"),
        result("x"),
        bot("So."),
        call("y"),
        result("y"),
    )
    assert told(*messages, of="11.1.21.") == [
        thought(),
        call("x", "y", content="Yes."),
        user("And?"),
        result("x"),
        bot("So."),
        result("y"),
    ]


def test_a_call_goes_behind_the_thought_of_its_own_answer():
    messages = thought(), user("wait"), bot("I wait."), call("x"), result("x")
    assert told(*messages, of="1.21.") == [thought(), call("x"), user("wait"), bot("I wait."), result("x")]


def test_what_was_said_after_the_calls_stays_after_them():
    messages = call("x"), result("x"), bot("Done."), call("y"), result("y")
    assert told(*messages, of="1.11.") == [call("x", "y"), result("x"), bot("Done."), result("y")]


@pytest.mark.regression("worker 165")
def test_a_message_of_words_and_calls_keeps_its_calls_when_others_of_its_answer_join_it():
    """A client may rewrite the message of a call, which is of the answer then as before."""
    messages = call("x", content="I look."), result("x"), call("y"), result("y")
    assert told(*messages, of="1.1.") == [call("x", "y", content="I look."), result("x"), result("y")]


def test_calls_of_which_nothing_is_known_stay_as_they_are_written():
    messages = bot("I look."), call("x"), result("x"), call("y"), result("y"), call("z", content="Now z.")
    assert told(*messages) == list(messages)


def test_calls_behind_one_signed_thought_are_taken_for_one_answers():
    messages = (
        thought(),
        thought("", "bW9yZQ=="),
        bot("I look."),
        call("x"),
        result("x"),
        call("y"),
        result("y"),
    )
    assert told(*messages) == [
        *messages[:2],
        call("x", "y", content="I look."),
        result("x"),
        result("y"),
    ]


@pytest.mark.parametrize("between", [user("And?"), bot("It is 1."), thought("New."), {"role": "developer"}])
def test_what_stands_between_two_calls_behind_a_thought_ends_the_answer(between):
    messages = thought(), call("x"), result("x"), between, call("y"), result("y")
    assert told(*messages) == list(messages)


def test_a_thought_that_was_never_signed_says_nothing_of_the_calls_behind_it():
    messages = thought(signature=None), call("x"), result("x"), call("y"), result("y")
    assert told(*messages) == list(messages)


def test_nothing_given_is_changed_and_gathering_again_changes_nothing_more():
    messages = [thought(), bot("I look."), call("x"), result("x"), call("y"), result("y")]
    before = copy.deepcopy(messages)
    once = told(*messages)
    assert messages == before
    assert told(*once) == once


@pytest.mark.regression("fault 197")
@pytest.mark.parametrize(
    ("adapter", "first", "of"),
    [
        (AnthropicLLMAdapter(), thought(), (None, None, None, None)),
        (OpenAILLMAdapter(), bot("I look."), ("run 1", None, "run 1", None)),
    ],
    ids=["behind-a-thought", "of-a-known-answer"],
)
def test_a_call_that_moves_up_keeps_its_answer(adapter, first, of):
    """A result of its id, which stood before it and is nobody's, does not take the place of the real one."""
    messages = [first, result("x", "nobody's"), call("x"), result("x", "its own")]
    told = adapter.messages(LLMContext(messages), (), answers=of)
    calls = [message for message in told if isinstance(message, dict) and message.get("tool_calls")]
    assert [[one["id"] for one in message["tool_calls"]] for message in calls] == [["x"]]
    of_nobody = STRAY_RESULT.format(tool_call_id='"x"')
    after = list(told[told.index(calls[0]) + 1 :])
    assert after == [result("x", "its own"), user(f"{of_nobody}\nnobody's")]


@pytest.mark.regression("fault 197")
def test_of_calls_with_one_id_each_keeps_its_answer_when_they_move():
    """The first of them has none."""
    messages = [thought(), call("x"), call("x"), result("x", "of the second")]
    *_, first, second = AnthropicLLMAdapter().messages(LLMContext(messages), ())
    assert [first, second] == [*paired([call("x")])[1:], result("x-2", "of the second")]


def test_a_result_of_nobody_ends_no_answer():
    messages = matched([thought(), call("x"), result("x"), result("x", "2"), call("y"), result("y")])
    assert told(*messages) == [messages[0], call("x", "y"), *messages[2:4], messages[5]]


THINKING = LLMContext(
    [
        user("Weather in Oslo and Rome?"),
        thought("Both."),
        bot("Let me look."),
        call("x"),
        result("x", "IN_PROGRESS"),
        call("y"),
        async_tool_messages.build_started_message("y"),
        async_tool_messages.build_final_result_message("y", '"warm"'),
        call("z"),
        result("z", "cold"),
    ]
)
SAID = "run 1"
ANSWERS = (None, SAID, SAID, SAID, None, SAID, None, None, SAID, None)


@pytest.mark.regression("trial m1")
def test_anthropic_gets_one_turn_of_an_answer_that_thought_and_called_and_one_of_its_results():
    body = AnthropicLLMService().request(THINKING, answers=ANSWERS).body
    keeps_the_rules(body, thinking=True)
    turns = [(one["role"], [block["type"] for block in one["content"]]) for one in body["messages"]]
    assert turns == [
        ("user", ["text"]),
        ("assistant", ["thinking", "text", "tool_use", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result", "tool_result", "text"]),
    ]


@pytest.mark.regression("trial m1")
def test_anthropic_takes_a_thought_with_several_calls_also_where_nobody_knows_whose_they_are():
    messages = [
        user("Both?"),
        thought(),
        call("x"),
        result("x"),
        call("y"),
        async_tool_messages.build_started_message("y"),
    ]
    keeps_the_rules(AnthropicLLMService().request(LLMContext(messages)).body, thinking=True)


@pytest.mark.regression("trial m1")
def test_openai_gets_one_message_with_all_calls_of_an_answer_and_all_results_behind_it():
    messages = OpenAILLMService().request(THINKING, answers=ANSWERS).body["messages"]
    assert [(one["role"], len(one.get("tool_calls", ()))) for one in messages] == [
        ("user", 0),
        ("assistant", 3),
        ("tool", 0),
        ("tool", 0),
        ("tool", 0),
        ("developer", 0),
    ]
    assert messages[1]["content"] == "Let me look."
    assert [one["tool_call_id"] for one in messages[2:5]] == ["x", "y", "z"]

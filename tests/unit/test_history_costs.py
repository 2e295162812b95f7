"""The time to compare a resent history is proportional to its length."""

import pytest
from tests.support.processor_time import assert_proportional

from frameledger.async_tool_messages import CANCELLED
from frameledger_services.gateway.ag_ui import history as ag_ui_history
from frameledger_services.gateway.ag_ui.run_input import Message
from frameledger_services.gateway.openai import client_answers, history
from frameledger_services.gateway.openai.history import Held
from frameledger_services.store.shown_messages import ShownMessage

GO, MORE = {"role": "user", "content": "Go"}, {"role": "user", "content": "More?"}


def said(text):
    return {"role": "assistant", "content": text}


def call(number):
    function = {"name": "f", "arguments": "{}"}
    return {
        "role": "assistant",
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def result(number, content="ok"):
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


def calls(count):
    return [message for number in range(count) for message in (call(number), result(number))]


def one_answer_in_many_messages(count):
    held = [Held(GO), *[Held(said("a"))] * count]
    sent = [GO, said("a " * 50 * count)]
    return lambda: history.plan(held, sent)


def cut_answers(count):
    held = [Held(GO), *[Held(said("a"), is_cut=True)] * count]
    sent = [GO, said("a " * 50 * count)]
    return lambda: history.plan(held, sent)


def words_that_may_be_missing(count):
    held = [Held(GO)]
    for number in range(count):
        held += [Held(said("a"), is_cut=True), Held(result(number))]
    sent = [GO, *(result(number) for number in range(count)), MORE]
    return lambda: history.plan(held, sent)


def many_calls(count):
    messages = [GO, *calls(count)]
    held = list(map(Held, messages))
    return lambda: history.plan(held, [*messages, MORE])


def words_sent_in_pieces(count):
    held, sent = [Held(GO)], [GO, *[said("a" * 200)] * count]
    return lambda: history.plan(held, sent)


def results_of_the_clients_own_functions(count):
    messages = calls(count)
    return lambda: client_answers.answered_calls(messages, messages, {})


def one_question_again_and_again(count):
    held, sent = [Held(GO)] * count, [*[GO] * count, said("a")]
    return lambda: history.repeated_end(held, sent, made=set())


def ag_ui_messages(count, *, ids, content="x"):
    roles = ("user", "assistant")
    rows = [ShownMessage(1, n, None, f"m{n}", {"role": roles[n % 2], "content": "x"}) for n in range(count)]
    sent = [Message(id=f"{ids}{n}", role=roles[n % 2], content=content) for n in range(count)]
    return lambda: ag_ui_history.plan(rows, sent)


def cancelled_calls(count):
    rows = [ShownMessage(1, n, None, None, result(n, CANCELLED)) for n in range(count)]
    sent = [Message(id=f"n{n}", role="user", content="y") for n in range(count)]
    return lambda: ag_ui_history.plan(rows, sent)


@pytest.mark.regression("gateway 59")
@pytest.mark.parametrize(
    ("history_of", "count"),
    [
        (one_answer_in_many_messages, 300),
        (cut_answers, 300),
        (words_that_may_be_missing, 200),
        (many_calls, 200),
        (words_sent_in_pieces, 3_000),
        (results_of_the_clients_own_functions, 1_000),
        (one_question_again_and_again, 200),
        (lambda count: ag_ui_messages(count, ids="m"), 1_500),
        (lambda count: ag_ui_messages(count, ids="n"), 500),
        (lambda count: ag_ui_messages(count, ids="m", content="y"), 500),
        (cancelled_calls, 100),
    ],
)
def test_a_history_is_compared_in_proportion_to_its_length(history_of, count):
    assert_proportional(history_of, count)

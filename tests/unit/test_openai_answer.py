"""Frames as an answer for a client: its text as it arrives, across attempts and runs."""

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    EndFrame,
    ErrorFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    TextFrame,
    Usage,
)
from frameledger_services.gateway.openai.answer import Answer

ASKED = 5


def start(run_id="r1", attempt=1, version=ASKED, **more):
    return LLMFullResponseStartFrame(run_id=run_id, attempt=attempt, context_version=version, **more)


def says(text, run_id="r1", attempt=1):
    return LLMTextFrame(text=text, run_id=run_id, attempt=attempt)


def end(run_id="r1", attempt=1, reason="stop", **more):
    return LLMFullResponseEndFrame(run_id=run_id, attempt=attempt, finish_reason=reason, **more)


def heard(*frames):
    """The answer, and what was sent behind each frame."""
    answer = Answer(ASKED)
    sent = []
    for frame in frames:
        answer.take(frame)
        sent.append(answer.more())
    return answer, sent


def test_pieces_are_sent_as_they_come_without_space_around_them():
    answer, sent = heard(start(model="owl"), says("  One"), says(" two "), says("three "), end())
    assert sent == ["", "One", " two", " three", ""]
    assert answer.text == "One two three"
    assert (answer.run_id, answer.model, answer.finish_reason) == ("r1", "owl", "stop")
    assert not answer.is_open


def test_words_that_bring_no_spaces_get_them():
    _, sent = heard(start(), TextFrame(text="One", run_id="r1"), TextFrame(text="two.", run_id="r1"), end())
    assert "".join(sent) == "One two."


def test_what_is_kept_out_of_the_context_is_not_said():
    out = TextFrame(text="Aside.", run_id="r1", append_to_context=False)
    thoughts = (LLMThoughtStartFrame(run_id="r1"), LLMThoughtEndFrame(run_id="r1"))
    _, sent = heard(start(), out, *thoughts, says("Said."), end())
    assert "".join(sent) == "Said."


def test_runs_of_one_answer_are_one_text_and_their_tokens_one_sum():
    calls = FunctionCallsStartedFrame(
        function_calls=[FunctionCallFromLLM(function_name="f", tool_call_id="c", arguments={})], run_id="r1"
    )
    used = Usage(input_tokens=3, output_tokens=2)
    answer, sent = heard(
        start(),
        says("I look."),
        calls,
        end(reason="tool_calls", usage=used),
        start("r2"),
        says(" Late.", "r2"),
        end("r2", reason="length", usage=used),
    )
    assert "".join(sent) == "I look.\n\nLate." == answer.text
    assert (answer.run_id, answer.finish_reason) == ("r1", "length")
    assert dict(answer.usage) == {"input_tokens": 6, "output_tokens": 4}


def test_an_answer_to_something_older_is_passed_over():
    answer, sent = heard(
        start("r0", version=ASKED - 1),
        says("Old.", "r0"),
        end("r0"),
        says("Old.", "r0"),
        start(),
        says("New."),
    )
    assert "".join(sent) == "New."
    assert answer.run_id == "r1"


def test_a_new_attempt_that_repeats_what_was_sent_goes_on_there():
    again = (start(attempt=2), says("One ", attempt=2), says("two three", attempt=2), end(attempt=2))
    answer, sent = heard(start(), says("One two"), *again)
    assert "".join(sent) == "One two three" == answer.text
    assert answer.failure is None


@pytest.mark.parametrize("words", [("Once",), ("One",), ()], ids=["other words", "fewer words", "no words"])
def test_a_new_attempt_that_says_something_else_ends_what_is_sent_and_not_what_is_collected(words):
    again = (start(attempt=2), *(says(word, attempt=2) for word in words), end(attempt=2))
    answer, sent = heard(start(), says("One two"), *again)
    assert "".join(sent) == "One two"
    assert answer.failure.code == "answer_superseded"

    collected = Answer(ASKED)
    for frame in (start(), says("One two"), *again):
        collected.take(frame)
    assert collected.text == " ".join(words)
    assert collected.failure is None


def test_an_attempt_of_a_later_run_begins_behind_what_the_runs_before_said():
    answer, sent = heard(
        start(),
        says("I look."),
        end(reason="tool_calls"),
        start("r2"),
        says("It is", "r2"),
        start("r2", attempt=2),
        says("It is late.", "r2", 2),
        end("r2", 2),
    )
    assert "".join(sent) == "I look.\n\nIt is late." == answer.text


def test_an_answer_fails_by_the_error_that_ended_its_run():
    answer, _ = heard(
        start(), ErrorFrame(code="overloaded", message="Later.", run_id="r1"), end(reason="error")
    )
    assert (answer.failure.code, answer.failure.message) == ("overloaded", "Later.")
    answer, _ = heard(
        start(), says("One"), ErrorFrame(code="silent", message="Gone.", run_id="r1", fatal=True)
    )
    assert answer.failure.code == "silent"
    # Of a function, of another run, and not the end.
    passing = (
        ErrorFrame(code="x", run_id="r1", tool_call_id="c"),
        ErrorFrame(code="x", run_id="r0"),
        ErrorFrame(code="retried", run_id="r1"),
    )
    answer, sent = heard(start(), *passing, says("One"), end())
    assert answer.failure is None
    assert sent[-2] == "One"
    answer, _ = heard(ErrorFrame(code="unclaimed", message="Nobody.", run_id="r1", fatal=True))
    assert (answer.failure.code, answer.has_begun) == ("unclaimed", False)


@pytest.mark.parametrize("cut", [InterruptionFrame(), EndFrame()], ids=["interruption", "end"])
def test_what_cuts_the_answer_short_ends_it_with_what_was_said(cut):
    answer, sent = heard(start(), says("One two "), cut)
    assert "".join(sent) == "One two"
    assert answer.was_interrupted
    assert not answer.is_open


def test_an_answer_has_begun_before_it_has_something():
    answer, _ = heard(start(), says("  "))
    assert (answer.has_begun, answer.has_something) == (True, False)
    answer.take(says("Word"))
    assert answer.has_something


PIECES = st.lists(st.tuples(st.text(st.sampled_from("ab \n\ud83d\ude00ä")), st.booleans()), max_size=8)


@given(PIECES)
def test_what_is_sent_is_what_the_context_has(pieces):
    folding = Folding(Conversation.new("a"))

    folding.step(LLMMessagesAppendFrame(messages=[{"role": "user", "content": "Hi"}], run_llm=True))
    run_id = folding.state.runs.open.run_id
    answer = Answer(1)
    sent = ""
    frames = [
        LLMFullResponseStartFrame(run_id=run_id, attempt=1, context_version=1),
        *(
            (LLMTextFrame if is_token else TextFrame)(text=text, run_id=run_id, attempt=1)
            for text, is_token in pieces
        ),
        LLMFullResponseEndFrame(run_id=run_id, attempt=1, finish_reason="stop"),
    ]
    for frame in frames:
        folding.step(frame)
        answer.take(frame)
        sent += answer.more()
    said = [one["content"] for one in folding.conversation().context.to_wire()["messages"][1:]]
    assert said == ([sent] if sent else [])


@pytest.mark.regression("gateway 65")
def test_an_answer_with_letters_beyond_ascii_takes_hardly_longer_than_one_without():
    def seconds(letter):
        took = []
        for _ in range(3):
            answer = Answer(1)
            answer.take(LLMFullResponseStartFrame(run_id="run-1"))
            began = thread_time()
            for _ in range(5_000):
                answer.take(LLMTextFrame(text=f"gr{letter}n ", run_id="run-1"))
                answer.more()
            took.append(thread_time() - began)
        return min(took)

    assert seconds("\u00fc") < 5 * seconds("u")

"""The output of an answer on the log: across attempts, with failures, and with ignored frames."""

from uuid import UUID

import pytest
from tests.support.stored_frame import stored_frame

from frameledger.frames import (
    ErrorFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMRunFrame,
    LLMTextFrame,
    LLMThoughtEndFrame,
    LLMThoughtStartFrame,
    LLMThoughtTextFrame,
)
from frameledger_services.pipecat.run_answer import AnswerEnded, AnswerRestarted, RunAnswer

QUESTION = UUID(int=1)


def output_of(*frames, question="applied", reason=None):
    """Returns the output for a request that is stored at version 5. A frame in a tuple is stored as ignored."""
    answer = RunAnswer(QUESTION)
    stored = [stored_frame(LLMRunFrame(), 5, question, reason, QUESTION)]
    for version, frame in enumerate(frames, 6):
        is_ignored = isinstance(frame, tuple)
        stored.append(
            stored_frame(frame[0] if is_ignored else frame, version, "ignored" if is_ignored else "applied")
        )
    return [part for one in stored for part in answer.take(one, one.frame)]


def start(attempt=1, run_id="r", version=5):
    return LLMFullResponseStartFrame(run_id=run_id, attempt=attempt, context_version=version)


def text(words, run_id="r"):
    return LLMTextFrame(text=words, run_id=run_id)


def thought(words):
    return (
        LLMThoughtStartFrame(llm="x", run_id="r"),
        LLMThoughtTextFrame(text=words, run_id="r"),
        LLMThoughtEndFrame(run_id="r"),
    )


END = LLMFullResponseEndFrame(run_id="r")


def test_text_is_said_as_it_comes_and_what_is_not_of_the_answer_is_not():
    said = output_of(
        start(2, "other", version=3),
        text("no", "other"),
        start(),
        text("One"),
        (text(" no"),),
        text(" two"),
        END,
    )
    assert said == ["One", " two", AnswerEnded()]


@pytest.mark.parametrize(
    ("again", "said"),
    [
        (["One two three"], ["One", " two", " three"]),
        (["On", "e t", "wo", " three"], ["One", " two", " three"]),
        (["One", " four"], ["One", " two", AnswerRestarted(), "One four"]),
        (["One"], ["One", " two"]),
    ],
)
def test_the_next_attempt_repeats_nothing(again, said):
    frames = [start(), text("One"), text(" two"), start(2), *map(text, again), END]
    assert output_of(*frames) == [*said, AnswerEnded()]


def test_a_thought_that_ended_is_thought_once_and_calls_are_those_of_the_attempt_that_ended():
    def calls(name):
        call = FunctionCallFromLLM(function_name=name, tool_call_id=name, arguments={})
        return FunctionCallsStartedFrame(function_calls=(call,), run_id="r", group_id="g")

    first = thought("Hm.")
    said = output_of(start(), *first, calls("a"), start(2), *thought("Hm!"), calls("b"), END)
    assert said[:3] == list(first)
    [ended] = said[3:]
    assert [one.function_name for one in ended.calls] == ["b"]
    assert ended.group_id == "g"


@pytest.mark.parametrize(
    ("frames", "failure"),
    [
        (
            [
                start(),
                ErrorFrame(code="c", message="m", run_id="r"),
                LLMFullResponseEndFrame(run_id="r", finish_reason="error"),
            ],
            "c: m",
        ),
        ([ErrorFrame(code="c", message="m", fatal=True, run_id="r")], "c: m"),
        ([start(), InterruptionFrame()], None),
    ],
    ids=["the provider fails", "the run fails before it began", "interrupted"],
)
def test_an_answer_that_breaks_off_ends(frames, failure):
    [*_, ended] = output_of(*frames)
    assert ended == AnswerEnded(failure=failure)


@pytest.mark.parametrize("reason", ["mirror_superseded", "context_changed"])
def test_a_question_that_does_not_count_says_why(reason):
    [ended] = output_of(question="ignored", reason=reason)
    assert ended.is_new
    assert ended.failure

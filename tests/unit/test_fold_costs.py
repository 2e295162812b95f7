"""The time to fold a frame is proportional to the number of calls or tools in it."""

import pytest
from tests.support.processor_time import assert_proportional

from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    EndFrame,
    FunctionCallInProgressFrame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMRunFrame,
    LLMSetToolsFrame,
    LLMUpdateSettingsFrame,
)
from frameledger.tools import of_client

COUNT = 1_500


def folded(*frames):
    folding = Folding(Conversation.new("talk"))
    for frame in frames:
        assert folding.step(frame).outcome == "applied"
    return folding.conversation()


def a_run(tools=()):
    """A conversation whose model answers, and the run."""
    conversation = folded(LLMSetToolsFrame(tools=tools), LLMRunFrame())
    folding, run = Folding(conversation), conversation.state.runs.open
    assert run is not None
    folding.step(LLMFullResponseStartFrame(run_id=run.run_id))
    return folding, run.run_id


def announcement(run_id, count, **terms):
    calls = [{"function_name": "f", "tool_call_id": f"c{n}", "arguments": {}} for n in range(count)]
    return FunctionCallsStartedFrame(run_id=run_id, function_calls=calls, **terms)


def stepping(folding, *frames):
    """What folds these frames anew each time that it is called."""
    before = folding.conversation()

    def fold_them():
        folding = Folding(before)
        for frame in frames:
            assert folding.step(frame).outcome == "applied"

    return fold_them


def an_announcement(count, **terms):
    folding, run_id = a_run()
    return stepping(folding, announcement(run_id, count, **terms))


def calls_that_each_are_a_group(count):
    return an_announcement(count, group_parallel_tools=False)


def the_end_of_a_run(count, **terms):
    folding, run_id = a_run()
    folding.step(announcement(run_id, count, **terms))
    return stepping(folding, LLMFullResponseEndFrame(run_id=run_id))


def calls_in_a_queue(count):
    return the_end_of_a_run(count, run_in_parallel=False)


def calls_that_a_client_answers(count):
    tool = of_client({"type": "function", "function": {"name": "f"}})
    folding, run_id = a_run([tool])
    folding.step(announcement(run_id, count, run_in_parallel=False))
    return stepping(folding, LLMFullResponseEndFrame(run_id=run_id))


def an_interruption(count):
    folding, run_id = a_run()
    folding.step(announcement(run_id, count))
    return stepping(folding, InterruptionFrame())


def the_end_of_a_conversation(count):
    tool = of_client({"type": "function", "function": {"name": "f"}})
    folding, run_id = a_run([tool])
    folding.step(announcement(run_id, count))
    folding.step(LLMFullResponseEndFrame(run_id=run_id))
    return stepping(folding, EndFrame())


def other_tools(count):
    def tools(letter):
        return [{"type": "function", "function": {"name": f"{letter}{n}"}} for n in range(count)]

    said = LLMUpdateSettingsFrame(settings={"add_tool_change_messages": True})
    before = Folding(folded(said, LLMSetToolsFrame(tools=tools("a"))))
    return stepping(before, LLMSetToolsFrame(tools=tools("b")))


@pytest.mark.regression("fault 111")
def test_a_change_of_many_tools_is_told_in_proportion_to_them():
    assert_proportional(other_tools, COUNT)


@pytest.mark.regression("fault 112")
@pytest.mark.parametrize(
    "calls",
    [
        an_announcement,
        calls_that_each_are_a_group,
        the_end_of_a_run,
        calls_in_a_queue,
        calls_that_a_client_answers,
        an_interruption,
        the_end_of_a_conversation,
    ],
)
def test_many_calls_are_folded_in_proportion_to_them(calls):
    assert_proportional(calls, COUNT)


def test_a_step_that_changes_calls_leaves_the_state_before_as_it_was():
    """Calls are changed in place only in a draft, which no state shares."""
    folding, run_id = a_run()
    before = folding.state
    folding.step(announcement(run_id, 3))
    announced = folding.state
    folding.step(LLMFullResponseEndFrame(run_id=run_id))
    dispatched = folding.state
    folding.step(
        FunctionCallInProgressFrame(function_name="f", tool_call_id="c1", arguments={}, call_attempt=1)
    )
    folding.step(InterruptionFrame())
    assert not before.calls.open
    assert {call.stage for call in announced.calls.open.values()} == {"announced"}
    assert {call.stage for call in dispatched.calls.open.values()} == {"dispatched"}
    assert list(folding.state.calls.open) == ["c1"]
    assert len(dispatched.calls.groups) == 1

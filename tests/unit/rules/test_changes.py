"""The changes of a step about calls and runs: a store writes its rows from these alone, without reading the frame."""

import pytest
from tests.unit.rules.dsl import (
    append,
    ask,
    begin,
    bot_speaks,
    bot_stops,
    committed,
    end,
    fail,
    finish,
    hear,
    interrupt,
    play,
    push,
    result,
    run_id,
    start,
    think,
    thought,
    tokens,
)

from frameledger.evolve.changes import (
    CallAnnounced,
    CallDispatched,
    CallInterrupted,
    CallKey,
    CallProgressed,
    CallResolved,
    CallSettled,
    CallStarted,
    CallWaiting,
    MessageAppended,
    RunClosed,
    RunRequested,
    RunStarted,
)
from frameledger.frames import FunctionCallFromLLM, FunctionCallsStartedFrame, LLMSetToolsFrame
from frameledger.tools import of_client

CALLS = (
    CallAnnounced,
    CallDispatched,
    CallStarted,
    CallWaiting,
    CallInterrupted,
    CallProgressed,
    CallSettled,
    CallResolved,
)
A = (CallKey(3, 0), "a")
STARTED = {"group_id": "g", "worker": "w", "timeout_secs": 5.0, "arguments": {"x": 1}, "function_name": "f"}


def of_calls(played):
    return [change for change in played.changes if isinstance(change, CALLS)]


@pytest.mark.rule("RA5.commit")
def test_an_announcement_says_each_call_and_its_place_and_the_end_which_of_them_are_dispatched():
    named = FunctionCallsStartedFrame(
        function_calls=[
            FunctionCallFromLLM(tool_call_id="a", function_name="f", arguments={"x": 1}),
            FunctionCallFromLLM(tool_call_id="b", function_name="g", arguments="{}", builtin=True),
        ],
        run_id=run_id(1),
        group_id="together",
    )
    announced = play(ask(), start(1), named)
    assert of_calls(announced) == [
        CallAnnounced(*A, "f", {"x": 1}, run_id(1), "together", False),
        CallAnnounced(CallKey(3, 1), "b", "g", "{}", run_id(1), "together", True),
    ]
    assert of_calls(play(end(1), onto=announced)) == [CallDispatched(*A), CallDispatched(CallKey(3, 1), "b")]


@pytest.mark.rule("R3.1", "RA5.start")
@pytest.mark.parametrize(
    ("given", "key", "attempt"),
    [([ask(), committed("a", run=1)], CallKey(3, 0), 2), ([], CallKey(1, 0), None)],
    ids=["a call that was dispatched", "a call that nobody announced"],
)
@pytest.mark.parametrize("sync", [True, False])
def test_a_start_says_on_which_terms_its_call_runs(given, key, attempt, sync):
    begun = begin("a", sync=sync, attempt=attempt, safe_to_retry=True, claim="c", **STARTED)
    terms = ("f", {"x": 1}, "g", attempt, "w", sync, True, 5.0, False, "c")
    assert of_calls(play(given, begun)) == [CallStarted(key, "a", *terms)]


@pytest.mark.rule("RA5.start")
def test_a_call_that_is_taken_over_says_its_new_worker_and_keeps_its_terms():
    given = play(ask(), committed("a", run=1), begin("a", attempt=1, safe_to_retry=True, **STARTED))
    other = STARTED | {"worker": "other", "timeout_secs": 9.0}
    taken_over = play(begin("a", sync=False, attempt=2, claim="c", **other), onto=given)
    terms = ("f", {"x": 1}, "g", 2, "other", True, True, None, True, "c")
    assert of_calls(taken_over) == [CallStarted(*A, *terms)]
    running = taken_over.state.calls.open["a"].running
    assert (running.worker, running.waiting, running.claim) == ("other", False, "c")


WAITS = {"for": "an approval", "deadline": "noon"}


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize(
    "frames",
    [
        [begin("a", attempt=1, waiting=WAITS)],
        [begin("a", attempt=1), begin("a", attempt=1, waiting=WAITS)],
        [begin("a", attempt=1, safe_to_retry=True), begin("a", attempt=2, waiting=WAITS)],
    ],
    ids=["its start", "its start once more", "a start that takes it over"],
)
def test_a_start_of_a_call_that_waits_says_for_whom_and_until_when(frames):
    waits = play(ask(), committed("a", run=1), frames)
    assert of_calls(waits)[-1] == CallWaiting(*A, "an approval", "noon")
    assert waits.state.calls.open["a"].running.waiting


@pytest.mark.rule("RA5.client")
def test_a_call_that_a_client_answers_starts_and_waits_without_a_worker():
    tools = [of_client({"type": "function", "function": {"name": "f", "parameters": {}}})]
    played = play(LLMSetToolsFrame(tools=tools), ask(), committed(("a", "f"), run=2))
    key = CallKey(4, 0)
    assert of_calls(played) == [
        CallDispatched(key, "a"),
        CallStarted(key, "a", "f", {}, None, None, None, synchronous=True),
        CallWaiting(key, "a", "the client"),
    ]


@pytest.mark.rule("R3.4", "R3.8")
def test_what_becomes_of_a_call_is_said_with_its_result():
    runs = play(ask(), committed("a", run=1), begin("a", sync=False))
    assert of_calls(play(result("a", [1], final=False), onto=runs)) == [CallProgressed(*A, [1])]
    ambiguous = play(result("a", [2], settled_as="ambiguous"), onto=runs)
    assert of_calls(ambiguous) == [CallSettled(*A, "ambiguous", [2])]
    assert of_calls(play(result("a", [3], settled_as="resolved"), onto=ambiguous)) == [CallResolved(*A, [3])]
    synchronous = play(ask(), committed("a", run=1), begin("a", attempt=1))
    assert of_calls(play(interrupt(), onto=synchronous)) == [CallInterrupted(*A)]


MESSAGES = {
    "of a run": [[ask(), start(1), think(1), thought("s", 1), tokens("one", run=1), push(1)], 1],
    "of a run, as it was heard": [[ask(), start(1), tokens("one two", run=1), interrupt("one")], 1],
    "of a response that answers it": [[ask(), start(), think(), thought("s"), tokens("one"), end()], 1],
    "of a response without one": [[start(), think(), thought("s"), tokens("one"), end()], None],
    "of the user": [[append("one"), hear("two")], None],
}


@pytest.mark.rule("RA5.valid")
@pytest.mark.parametrize(("frames", "run"), MESSAGES.values(), ids=MESSAGES)
def test_a_message_says_which_run_has_said_it(frames, run):
    played = play(frames)
    changes = [change for step in played.steps for change in step.changes]
    said = [change.run_id for change in changes if isinstance(change, MessageAppended)]
    assert said == [run and run_id(run)] * len(played.texts)


@pytest.mark.rule("RA5.adopt", "RA5.attempts")
def test_a_start_says_the_attempt_and_the_claim_of_the_run_that_it_answers():
    assert play(ask(), start()).changes == (RunStarted(run_id(1), 0),)
    claimed = start(1, 2).model_copy(update={"claim": "c"})
    assert play(ask(), start(1), claimed).changes == (RunStarted(run_id(1), 2, "c"),)
    assert play(start()).changes == ()


ENDS = {
    "its end": [start(1), end(1), "ended"],
    "an end with an error": [start(1), end(1, finish_reason="error"), "failed"],
    "a fatal error": [start(1), fail(1), "failed"],
    "a fatal error that names none": [start(), fail(), "failed"],
    "one before it was begun": [[], fail(), "failed"],
    "an interruption": [start(1), interrupt(), "interrupted"],
    "an input that interrupts": [start(1), hear("no", second_input="interrupt"), "interrupted"],
    "another response": [start(), start(), "replaced"],
    "the end of the context": [start(1), finish(), "context_ended"],
}


@pytest.mark.rule("R4.3", "R4.4")
@pytest.mark.parametrize(("begun", "closing", "by"), ENDS.values(), ids=ENDS)
def test_a_run_that_closes_says_what_closed_it(begun, closing, by):
    changes = play(ask(), begun, closing).changes
    assert [change for change in changes if isinstance(change, RunClosed)] == [RunClosed(run_id(1), by)]


@pytest.mark.rule("RA5.request")
def test_only_the_first_frame_that_asks_for_a_run_is_its_request():
    played = play(ask(), ask(), append("on", run_llm=True))
    said = [change for step in played.steps for change in step.changes if isinstance(change, RunRequested)]
    assert said == [RunRequested(run_id(1)), RunRequested(run_id(2)), RunRequested(run_id(2), first=False)]


@pytest.mark.rule("RA5.request", "R4.1")
def test_a_run_that_was_deferred_is_requested_by_the_frame_that_ends_what_it_waited_for():
    played = play(begin("a"), bot_speaks(), result("a", 1), bot_stops())
    assert RunRequested(run_id(4)) in played.changes

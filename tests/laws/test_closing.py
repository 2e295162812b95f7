"""Nothing blocks a context forever: all open work can be closed, and no requested answer is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.arbitrary import as_from_a_record
from tests.laws.strategies import CONTEXT, Moment, coming_to_rest, conversations, moments

from frameledger.evolve import evolve
from frameledger.evolve.changes import CallSettled, MessageAppended, RunClosed, RunOpened, RunRequested
from frameledger.evolve.state import Runs
from frameledger.fold import Conversation, Folding, fold
from frameledger.frames import (
    CancelFrame,
    EndFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMRunFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger.ids import ToolCallId


@pytest.mark.rule("R4.4")
@given(conversations())
def test_a_fatal_error_closes_the_open_run_at_any_moment(frames):
    for moment in moments(frames):
        run = moment.after.runs.open
        if run is not None:
            for attempt in (None, run.attempt or 1, run.attempt + 1):
                error = ErrorFrame(fatal=True, run_id=run.run_id, attempt=attempt)
                step = evolve(moment.after, as_from_a_record(error))
                assert step.outcome == "applied"
                assert RunClosed(run.run_id, "failed") in step.changes
                assert step.state.runs.open is None or step.state.runs.open.run_id != run.run_id


@pytest.mark.rule("R3.4")
@given(conversations())
def test_a_cancel_settles_any_open_call_at_any_moment(frames):
    for moment in moments(frames):
        for call in moment.after.calls.open.values():
            named = {"function_name": call.function_name, "tool_call_id": call.tool_call_id}
            for opened_version in (None, call.requested_version):
                cancel = FunctionCallCancelFrame(opened_version=opened_version, **named)
                step = evolve(moment.after, as_from_a_record(cancel))
                assert step.reason in (None, "place_replaced")
                settled = [change for change in step.changes if isinstance(change, CallSettled)]
                assert [(one.key.requested_version, one.key.ordinal, one.end) for one in settled] == [
                    (call.requested_version, call.ordinal, "cancelled")
                ]
                assert call.tool_call_id not in step.state.calls.open


@given(conversations(), st.integers(0, 50))
def test_closing_what_is_open_again_and_again_leaves_nothing_open_remembered_or_owed(frames, cut):
    state = fold(frames[:cut], Conversation.new(CONTEXT)).state
    for _, step in coming_to_rest(state):
        state = step.state
    # A noted request does not wait for an answer.
    assert (state.runs, dict(state.calls.open), state.turn) == (Runs(noted=state.runs.noted), {}, None)


@pytest.mark.rule("R1.2", "R1.4", "R3.7", "R4.1", "R4.3")
@given(conversations())
def test_words_and_results_are_answered_by_a_run_that_sees_them(frames):
    """At once, or when what they wait for is over, at the latest by the timekeeper. An interruption or an end would
    cancel the answer; none follows the words or the result here."""
    for moment in moments(frames):
        if waits_for_an_answer(moment):
            steps = [moment.step, *(step for _, step in coming_to_rest(moment.after))]
            assert any(isinstance(change, RunOpened) for step in steps for change in step.changes)


def waits_for_an_answer(moment: Moment) -> bool:
    """Whether this frame wrote words of the user, or the first or only result of a call, without `run_llm: false`."""
    frame, terms = moment.frame, moment.after.terms
    if (
        terms.is_answered_elsewhere
        or terms.ended
        or terms.mirror is not None
        or moment.step.outcome != "applied"
    ):
        return False
    if isinstance(frame, FunctionCallResultFrame):
        # A person's resolution of an ambiguous call does not concern an open one.
        call = moment.before.calls.open.get(ToolCallId(frame.tool_call_id))
        running = None if call is None else call.running
        owed_a_cancel = running is not None and running.interrupted and frame.call_attempt is not None
        words = (frame.run_llm, frame.properties and frame.properties.run_llm)
        return frame.result is not None and not owed_a_cancel and False not in words
    heard = isinstance(frame, UserStartedSpeakingFrame | UserStoppedSpeakingFrame | TranscriptionFrame)
    return heard and any(isinstance(change, MessageAppended) for change in moment.step.changes)


RUN_ENDS_BADLY = {
    "a fatal error": [ErrorFrame(fatal=True, run_id="second")],
    "an end with an error": [LLMFullResponseEndFrame(run_id="second", finish_reason="error")],
    "a next attempt that calls nothing": [
        LLMFullResponseStartFrame(run_id="second", attempt=2),
        LLMFullResponseEndFrame(run_id="second", attempt=2),
    ],
}


@pytest.mark.rule("R3.7", "R4.4")
@pytest.mark.parametrize("last", RUN_ENDS_BADLY.values(), ids=RUN_ENDS_BADLY)
def test_a_result_is_answered_when_the_call_that_it_waited_for_is_forgotten_with_its_run(last):
    """A case that the property above found once, and finds rarely."""
    folding = Folding(Conversation.new(CONTEXT))
    one, other = ({"function_name": "weather", "tool_call_id": name} for name in ("c1", "c2"))
    for frame in (
        LLMRunFrame(),
        LLMFullResponseStartFrame(run_id="first"),
        FunctionCallsStartedFrame(run_id="first", function_calls=[one | {"arguments": {}}], group_id="g"),
        LLMFullResponseEndFrame(run_id="first"),
        FunctionCallInProgressFrame(**one, arguments={}, cancel_on_interruption=True, call_attempt=1),
        LLMRunFrame(),
        LLMFullResponseStartFrame(run_id="second"),
        FunctionCallsStartedFrame(run_id="second", function_calls=[other | {"arguments": {}}], group_id="g"),
        FunctionCallResultFrame(**one, result="rain", call_attempt=1),
        *last,
    ):
        run = folding.state.runs.open
        if getattr(frame, "run_id", None) is not None and run is not None:
            frame = frame.model_copy(update={"run_id": run.run_id})
        step = folding.step(frame)
        assert step is not None
        assert step.outcome == "applied"
    assert folding.state.runs.open is not None


@pytest.mark.rule("R1.6")
@given(conversations(), st.sampled_from([EndFrame(), CancelFrame()]))
def test_the_end_closes_everything_at_once_and_asks_for_nothing(frames, end):
    for moment in moments(frames):
        step = evolve(moment.after, end)
        assert step.outcome == "applied" or moment.after.terms.ended
        assert evolve(step.state, end).reason == "context_ended"
        assert not any(isinstance(change, RunRequested | RunOpened) for change in step.changes)
        state = step.state
        assert (state.runs, dict(state.calls.open), state.turn) == (Runs(noted=state.runs.noted), {}, None)
        assert (state.speech.response, state.speech.thought, state.speech.bot_since) == (None, None, None)


@pytest.mark.rule("R4.3")
@given(conversations())
def test_a_run_is_remembered_only_while_something_stands_in_its_way(frames):
    for moment in moments(frames):
        runs, calls = moment.after.runs, moment.after.calls.open.values()
        if runs.wanted is not None:
            assert runs.open is not None or any(call.stage in ("queued", "dispatched") for call in calls)


@pytest.mark.rule("R4.1", "R4.2")
@given(conversations())
def test_a_run_is_owed_only_to_a_turn_or_a_speech_that_will_end(frames):
    for moment in moments(frames):
        runs = moment.after.runs
        assert not runs.owed_to_turn or moment.after.turn is not None
        assert not runs.owed_to_bot or moment.after.speech.bot_since is not None


@pytest.mark.rule("R3.6")
@given(conversations())
def test_a_group_is_known_as_long_as_a_call_of_it_is_open(frames):
    for moment in moments(frames):
        calls = moment.after.calls
        assert {call.group for call in calls.open.values()} == set(calls.groups)


@pytest.mark.rule("R2.1", "RA5.fence")
@given(conversations())
def test_a_run_that_was_begun_is_open_as_long_as_its_response(frames):
    """So nothing of a run outlives its response: neither a thought nor a call that it announced and did not commit."""
    for moment in moments(frames):
        run, speech = moment.after.runs.open, moment.after.speech
        answering = None if speech.response is None else speech.response.run_id
        begun = None if run is None or run.untouched else run.run_id
        assert answering == begun
        assert speech.thought is None or speech.thought.run_id in (None, begun)
        for call in moment.after.calls.open.values():
            if call.stage == "announced" and call.announced.run_id is not None:
                assert call.announced.run_id == begun
                assert call.announced.response == speech.response.opened_version
                assert call.announced.attempt == run.attempt

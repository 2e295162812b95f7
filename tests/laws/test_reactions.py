"""Effects follow from the frames: once for each cause, and never in a recording."""

import pytest
from hypothesis import given
from tests.laws.strategies import Moment, conversations, moments

from frameledger.effects import CallFunction, Cancel, Effect, RunInference, to_wire
from frameledger.evolve.changes import CallDispatched, CallSettled, RunClosed, RunOpened, RunRequested
from frameledger.react import react


def effects_of(moment: Moment) -> tuple[Effect, ...]:
    return react(moment.before, moment.frame, moment.after)


def is_of_a_client(moment: Moment, change: CallDispatched) -> bool:
    call = moment.after.calls.open.get(change.tool_call_id) or moment.before.calls.open[change.tool_call_id]
    return call.by_client


@pytest.mark.rule("R4.5", "RA5.recording")
@given(conversations())
def test_a_recording_has_no_effects(frames):
    for moment in moments(frames):
        if moment.after.terms.recording:
            assert effects_of(moment) == ()


@pytest.mark.rule("R4.5", "RA5.recording")
@given(conversations())
def test_no_run_opens_in_a_recording(frames):
    """Nobody would answer it, and the timekeeper leaves recordings alone: it would be open for ever."""
    for moment in moments(frames):
        if moment.after.terms.recording:
            assert not any(isinstance(change, RunOpened) for change in moment.step.changes)


@pytest.mark.rule("RA5.react")
@given(conversations())
def test_the_same_states_have_the_same_effects_and_no_two_effects_of_a_context_have_one_id(frames):
    seen: set[str] = set()
    for moment in moments(frames):
        effects = effects_of(moment)
        assert react(moment.before, moment.frame, moment.after) == effects
        ids = [effect.id for effect in effects]
        assert len(set(ids)) == len(ids)
        assert not seen.intersection(ids)
        seen.update(ids)
        for effect in effects:
            assert (effect.context_id, effect.version) == (moment.after.context_id, moment.after.version)
            assert None not in to_wire(effect).values()


@pytest.mark.rule("RA5.react", "RA5.request")
@given(conversations())
def test_every_run_that_opens_asks_for_one_inference_unless_its_answer_has_begun(frames):
    """A response that names no run may begin in the very frame that opens the run: then it is the answer."""
    for moment in moments(frames):
        opened = [change.run_id for change in moment.step.changes if isinstance(change, RunOpened)]
        run = moment.after.runs.open
        due = [run_id for run_id in opened if run is not None and run.run_id == run_id and run.untouched]
        if moment.after.terms.recording:
            due = []
        assert len(opened) <= 1
        assert [e.run_id for e in effects_of(moment) if isinstance(e, RunInference)] == due


@pytest.mark.rule("RA5.react", "RA5.commit")
@given(conversations())
def test_every_dispatched_call_is_asked_for_once_outside_recordings(frames):
    for moment in moments(frames):
        dispatched = [
            (change.key.requested_version, change.key.ordinal, change.tool_call_id)
            for change in moment.step.changes
            if isinstance(change, CallDispatched) and not is_of_a_client(moment, change)
        ]
        called = [
            (effect.requested_version, effect.ordinal, effect.tool_call_id)
            for effect in effects_of(moment)
            if isinstance(effect, CallFunction)
        ]
        assert called == ([] if moment.after.terms.recording else sorted(dispatched))


@pytest.mark.rule("RA5.client")
@given(conversations())
def test_no_worker_hears_of_a_call_that_a_client_answers_and_it_waits_from_its_dispatch_on(frames):
    theirs: set[tuple[str, int]] = set()
    for moment in moments(frames):
        for call in moment.after.calls.open.values():
            if call.by_client:
                theirs.add((call.tool_call_id, call.requested_version))
                assert call.stage != "dispatched"
                assert call.running is None or call.running.call_attempt is None
                assert call.running is None or call.running.waiting
        open_before = moment.before.calls.open
        for effect in effects_of(moment):
            if isinstance(effect, CallFunction):
                assert (effect.tool_call_id, effect.requested_version) not in theirs
            elif isinstance(effect, Cancel) and effect.tool_call_id is not None:
                assert not open_before[effect.tool_call_id].by_client


@pytest.mark.rule("R4.3", "RA5.request")
@given(conversations())
def test_a_run_opens_only_when_none_is_open_and_no_committed_call_has_still_to_start(frames):
    asked: set[str] = set()
    for moment in moments(frames):
        open_run = moment.before.runs.open and moment.before.runs.open.run_id
        for change in moment.step.changes:
            match change:
                case RunRequested():
                    asked.add(change.run_id)
                case RunClosed():
                    assert open_run == change.run_id
                    open_run = None
                case RunOpened():
                    assert open_run is None
                    assert change.run_id in asked
                    open_run = change.run_id
                    unstarted = ("queued", "dispatched")
                    assert not any(call.stage in unstarted for call in moment.after.calls.open.values())


@pytest.mark.rule("RA5.react", "R5.7")
@given(conversations())
def test_only_work_that_somebody_was_asked_for_and_that_is_over_is_told_to_stop(frames):
    runs: set[str] = set()
    for moment in moments(frames):
        effects = effects_of(moment)
        over = {change.run_id for change in moment.step.changes if isinstance(change, RunClosed)}
        settled = {change.tool_call_id for change in moment.step.changes if isinstance(change, CallSettled)}
        interrupted = {
            call.tool_call_id
            for call in moment.after.calls.open.values()
            if call.running is not None and call.running.interrupted
        }
        for effect in effects:
            if isinstance(effect, Cancel):
                assert (effect.run_id is None) != (effect.tool_call_id is None)
                assert effect.run_id is None or effect.run_id in over
                assert effect.tool_call_id is None or effect.tool_call_id in settled | interrupted
                if effect.run_id is not None:
                    assert effect.run_id not in runs
                    runs.add(effect.run_id)

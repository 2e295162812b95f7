"""Conversations that are sometimes erased: nothing of one life reaches the next, and no id is used twice."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.laws.strategies import CONTEXT, conversation_of, conversations, moments, words_in

from frameledger import stored
from frameledger.evolve import erasure, evolve
from frameledger.evolve.changes import ContextErased, RunOpened
from frameledger.evolve.state import State
from frameledger.fold import Conversation, fold
from frameledger.frames import LLMContextEraseFrame, LLMMirrorFrame, encode_frame
from frameledger.ids import ContextId
from frameledger.react import react

NEW = Conversation.new(CONTEXT)
ERASED = conversations(erases=True)


@pytest.mark.rule("RA5.erase")
@given(ERASED)
def test_nothing_that_was_said_before_an_erasure_is_in_the_context_or_the_state_behind_it(frames):
    before: set[str] = set()
    said: set[str] = set()
    for moment in moments(frames):
        if isinstance(moment.frame, LLMContextEraseFrame):
            assert moment.step.changes == (ContextErased(moment.after.version),)
            assert moment.after == erasure.beginning(ContextId(CONTEXT), moment.after.version)
            assert moment.rows == ()
            before |= said
            said = set()
        said |= words_in(encode_frame(moment.frame).decode())
        found = words_in(json.dumps(moment.messages)) | words_in(stored.dump(moment.after).decode())
        assert found & before - said == set()


@pytest.mark.rule("RA5.erase")
@given(ERASED)
def test_no_run_and_no_effect_has_an_id_of_an_earlier_life(frames):
    runs: list[str] = []
    effects: list[str] = []
    for moment in moments(frames):
        runs += [change.run_id for change in moment.step.changes if isinstance(change, RunOpened)]
        effects += [effect.id for effect in react(moment.before, moment.frame, moment.after)]
    assert len(runs) == len(set(runs))
    assert len(effects) == len(set(effects))


@pytest.mark.rule("RA5.erase")
@given(ERASED)
def test_versions_go_on_over_every_erasure(frames):
    versions = [moment.after.version for moment in moments(frames)]
    assert versions == list(range(1, len(versions) + 1))


@given(ERASED, st.integers(0, 50))
def test_folding_in_two_halves_equals_folding_at_once(frames, cut):
    assert fold(frames[cut:], fold(frames[:cut], NEW)) == fold(frames, NEW)


@given(ERASED)
def test_a_state_that_was_stored_between_two_frames_goes_on_as_if_it_had_not_been(frames):
    state = State(ContextId(CONTEXT))
    for moment in moments(frames):
        assert not erasure.is_of_an_earlier_life(state, moment.frame)
        step = evolve(state, moment.frame)
        assert step == moment.step
        state = stored.load(stored.dump(step.state))
        assert state == moment.after


@pytest.mark.rule("RA5.lives")
@example(conversation_of([0] * 43 + [45379, 1, 1, 86, 5, 35123, 95], erases=True))
@given(ERASED)
def test_what_was_erased_published_once_more_by_its_workers_changes_nothing(frames):
    """Returns frames after the last erasure that name a run of an earlier life and not a mirror of the current one."""
    played = list(moments(frames))
    # One whose id came before is a repetition, and erases nothing.
    erasures = [moment.frame for moment in played if isinstance(moment.frame, LLMContextEraseFrame)]
    if not erasures:
        return
    erased_at = next(place for place, frame in enumerate(frames) if frame is erasures[-1])
    own: set[str] = set()
    for moment in played:
        own = set() if isinstance(moment.frame, LLMContextEraseFrame) else own
        runs = moment.after.runs
        own |= {run.run_id for run in (runs.open, runs.wanted) if run is not None}
    whole = fold(frames, NEW)
    assert whole.state.erased is not None
    late = [
        frame.model_copy(update={"id": None})
        for frame in frames[:erased_at]
        if (run := getattr(frame, "run_id", None)) is not None
        and run not in own
        and frame.mirror not in whole.state.erased.mirrors
    ]
    assert fold(late, whole) == whole


@pytest.mark.rule("RA5.lives")
@given(ERASED)
def test_nothing_that_names_a_mirror_of_an_earlier_life_changes_the_next(frames):
    whole = fold(frames, NEW)
    if whole.state.erased is None:
        return
    late = [
        frame.model_copy(update={"id": None, "mirror": "of an earlier life"})
        for frame in frames
        if not isinstance(frame, LLMMirrorFrame | LLMContextEraseFrame)
    ]
    assert fold(late, whole) == whole

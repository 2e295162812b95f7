"""The limits of a conversation: what goes beyond one is ignored, and says which (R8)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    committed,
    context,
    end,
    hear,
    limits,
    play,
    result,
    run_id,
    start,
    update,
)

from frameledger.evolve.changes import RunOpened, SettingChanged


def a_round(run, call, version):
    """A run that calls, and its result, which requests the next run: five frames from `version` on."""
    return [*committed(call, run=run), begin(call, attempt=1), result(call, version, attempt=1)]


def rounds(count, first=2):
    """So many rounds, one after another, of the run that frame `first` requested."""
    frames, run = [], first
    for number in range(count):
        frames += a_round(run, f"c{number}", first)
        run = first + 5 * (number + 1)
    return frames


@pytest.mark.rule("R8.1")
def test_limits_are_replaced_whole_and_a_context_frame_leaves_them():
    played = play(limits(rounds=3, calls_per_run=2), context("hi"), update("you"), limits(rounds=4))
    assert played.changes == (SettingChanged("limits", {"rounds": 4}),)
    assert play(limits(), onto=played).state.terms.limits == {}
    assert play(limits(), limits()).changes == ()


@pytest.mark.rule("R8.1")
def test_without_limits_nothing_is_limited():
    played = play(append("go", run_llm=True), rounds(60, first=1))
    assert set(played.reasons) == {None}


@pytest.mark.rule("R8.1")
def test_in_a_recording_no_limit_acts():
    recorded = context("hi", react=False)
    played = play(limits(rounds=1, calls_per_run=1), recorded, *(announce("a", "b") for _ in range(3)))
    assert "too_many_calls" not in played.reasons
    assert "too_many_rounds" not in played.reasons


@pytest.mark.rule("R8.2")
def test_an_announcement_with_more_calls_than_a_run_may_have_is_ignored_whole():
    played = play(limits(calls_per_run=2), ask(), start(2), announce("a", "b", "c", run=2))
    assert played.became == "too_many_calls"
    assert played.state.calls.open == {}
    then = play(end(2), onto=played)
    assert then.became == "applied"
    assert then.state.runs.open is None


@pytest.mark.rule("R8.2")
def test_the_calls_of_all_announcements_of_a_run_count():
    played = play(
        limits(calls_per_run=2),
        ask(),
        start(2),
        announce("a", run=2),
        announce("b", "c", run=2),
        announce("d", run=2),
    )
    assert played.reasons[3:] == [None, "too_many_calls", None]
    assert list(played.state.calls.open) == ["a", "d"]


@pytest.mark.rule("R8.2")
def test_calls_of_another_run_and_of_an_earlier_attempt_do_not_count():
    again = play(
        limits(calls_per_run=1),
        ask(),
        start(2),
        announce("a", run=2),
        start(2, attempt=2),
        announce("b", run=2, attempt=2),
    )
    assert again.became == "applied"
    another = play(
        limits(calls_per_run=1),
        ask(),
        *committed("a", run=2),
        begin("a", sync=False),
        ask(),
        start(7),
        announce("b", run=7),
    )
    assert another.became == "applied"


@pytest.mark.rule("R8.2")
def test_a_call_that_is_open_already_is_no_more_of_them():
    played = play(limits(calls_per_run=1), ask(), start(2), announce("a", run=2), announce("a", run=2))
    assert played.became == "call_open_already"


@pytest.mark.rule("R8.2")
def test_a_response_that_names_no_run_is_limited_too():
    played = play(limits(calls_per_run=1), start(), announce("a"), announce("b"))
    assert played.became == "too_many_calls"
    assert play(limits(calls_per_run=1), announce("a", "b")).became == "too_many_calls"


@pytest.mark.rule("R8.3")
def test_a_model_that_calls_itself_for_ever_is_stopped():
    frames = rounds(2)
    played = play(
        limits(rounds=2), append("go", run_llm=True), frames, start(12), announce("more", run=12), end(12)
    )
    assert played.reasons[-3:] == [None, "too_many_rounds", None]
    assert played.state.runs.open is None
    assert played.state.runs.wanted is None
    assert played.state.calls.open == {}


@pytest.mark.rule("R8.3")
@pytest.mark.parametrize("said", [append("on", run_llm=True), hear("on"), ask(), update("on", run_llm=True)])
def test_an_input_begins_to_count_anew(said):
    stopped = play(limits(rounds=1), ask(), rounds(1), start(7), announce("more", run=7), end(7))
    assert stopped.reasons[-2] == "too_many_rounds"
    on = play(said, start(11), announce("more", run=11), onto=stopped)
    assert on.became == "applied"


@pytest.mark.rule("R8.3")
@pytest.mark.parametrize("said", [append("a note"), update("a summary")])
def test_what_requests_no_run_is_no_input(said):
    played = play(limits(rounds=1), ask(), rounds(1), said, start(7), announce("more", run=7))
    assert played.became == "too_many_rounds"


@pytest.mark.rule("R8.3")
def test_all_attempts_of_a_run_are_one_round():
    played = play(
        limits(rounds=1),
        ask(),
        start(2),
        announce("a", run=2),
        start(2, attempt=2),
        announce("b", run=2, attempt=2),
    )
    assert played.became == "applied"
    assert played.state.pace.rounds == 1


@pytest.mark.rule("R8.3")
def test_a_run_without_calls_is_no_round():
    played = play(limits(rounds=1), ask(), *answer("hm", run=2))
    assert played.state.pace.rounds == 0


@pytest.mark.rule("R8.3")
def test_answers_that_name_no_run_are_counted_each():
    played = play(limits(rounds=1), start(), announce("a"), end(), start(), announce("b"))
    assert played.became == "too_many_rounds"


@pytest.mark.rule("R8.3")
def test_a_run_says_how_many_rounds_were_before_it():
    played = play(append("go", run_llm=True), rounds(2, first=1))
    opened = [one for step in played.steps for one in step.changes if isinstance(one, RunOpened)]
    assert [(one.run_id, one.rounds) for one in opened] == [(run_id(1), 0), (run_id(6), 1), (run_id(11), 2)]

"""Responses without a run id: which run they answer, and what a later response with the id does (RA5.adopt)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    append,
    ask,
    begin,
    end,
    fail,
    interrupt,
    play,
    push,
    result,
    run_id,
    start,
    think,
    thinking,
    thought,
    tokens,
)

from frameledger.effects import Cancel, RunInference
from frameledger.evolve.changes import RunClosed, RunStarted


@pytest.mark.rule("RA5.adopt")
def test_a_response_that_names_no_run_adopts_the_open_run_and_closes_it_with_its_end():
    played = play(ask(), start(), tokens("hi"))
    assert played.state.runs.open.adopted
    after = play(end(), onto=played)
    assert [(change.run_id, change.end) for change in after.changes if isinstance(change, RunClosed)] == [
        (run_id(1), "ended")
    ]
    assert (after.texts, after.state.runs.open) == (["assistant: hi"], None)


@pytest.mark.rule("RA5.adopt", "R4.3")
def test_a_remembered_run_starts_when_the_adopted_one_ends():
    played = play(ask(), start(), ask(), end())
    assert (played.asked, played.opened) == ([1, 3], [1, 4])
    assert [effect.run_id for effect in played.effects[-1] if isinstance(effect, RunInference)] == [run_id(3)]


@pytest.mark.rule("RA5.adopt")
@pytest.mark.parametrize("closes", [end(), interrupt(), fail(), start(), fail(1)])
def test_whatever_ends_the_adopting_response_closes_its_run(closes):
    played = play(ask(), start(), tokens("hi"), closes)
    assert (played.texts, played.state.runs.open) == (["assistant: hi"], None)


@pytest.mark.rule("RA5.adopt")
def test_a_start_with_the_runs_id_outranks_the_adopting_response_and_its_words_go():
    adopting = [start(), tokens("a"), push(), think(), thinking("t"), thought("s"), tokens("b"), think()]
    played = play(append("hi"), ask(), adopting, announce("c"), start(2))
    assert played.texts == ["user: hi"]
    assert played.state.calls.open == {}
    then = play(tokens("late"), tokens("two", run=2), end(2), onto=played)
    assert then.texts == ["user: hi", "assistant: two"]
    assert then.reasons[-3:] == ["run_response_open", None, None]


@pytest.mark.rule("RA5.adopt")
def test_a_run_is_adopted_once():
    played = play(ask(), start(), start(), tokens("two"), end())
    assert [
        change for step in played.steps[2:] for change in step.changes if isinstance(change, RunStarted)
    ] == []
    assert played.texts == ["assistant: two"]


@pytest.mark.rule("RA5.adopt")
def test_a_run_that_somebody_began_to_answer_is_not_adopted():
    played = play(ask(), start(1), start(), tokens("plain"), end())
    assert played.reasons[2:] == ["run_response_open"] * 3
    assert (played.texts, played.state.runs.open.run_id) == ([], run_id(1))


@pytest.mark.rule("RA5.adopt")
def test_without_an_open_run_a_response_belongs_to_none_and_closes_none():
    played = play(start(), tokens("plain"), ask(), end())
    assert (played.texts, played.state.runs.open.run_id) == (["assistant: plain"], run_id(3))
    assert play(start(3), tokens("run", run=3), end(3), onto=played).texts[1:] == ["assistant: run"]


@pytest.mark.rule("RA5.adopt", "R2.1")
def test_a_run_that_starts_to_answer_finishes_a_response_that_belongs_to_none():
    played = play(start(), tokens("plain"), think(), announce("a"), ask(), start(5))
    assert (played.texts, played.became) == (["assistant: plain"], "applied")
    assert (played.state.calls.open, played.state.speech.thought) == ({}, None)
    assert play(start(5, 2), onto=played).texts == ["assistant: plain"]


@pytest.mark.rule("RA5.adopt")
def test_a_response_that_belongs_to_none_does_not_adopt_a_run_asked_for_while_it_streams():
    played = play(start(), ask(), tokens("plain"), interrupt())
    assert (played.texts, played.state.runs.open) == (["assistant: plain"], None)
    played = play(start(), tokens("one"), ask(), start(), tokens("two"))
    assert (played.texts, played.state.runs.open.adopted) == (["assistant: one"], True)


@pytest.mark.rule("RA5.adopt", "RA5.fence")
def test_only_a_start_adopts():
    for stray in (tokens("x"), end(), push(), thinking("x")):
        assert play(ask(), stray).state.runs.open.untouched
    assert play(ask(), fail()).state.runs.open is None


@pytest.mark.rule("RA5.adopt")
def test_calls_that_an_adopting_response_announces_are_never_dispatched():
    played = play(ask(), start(), announce("a"), end())
    assert played.state.calls.open["a"].stage == "announced"
    assert not any(effect.effect == "call_function" for effect in played.effects[-1])
    assert play(begin("a"), result("a", 1), onto=played).texts == ["assistant calls a(a)", "tool a: 1"]


@pytest.mark.rule("RA5.adopt", "RA5.attempts")
@pytest.mark.parametrize("attempt", [None, 1, 2])
def test_any_attempt_outranks_adoption(attempt):
    played = play(ask(), start(), tokens("lost"), start(1, attempt), tokens("kept", run=1, attempt=attempt))
    assert play(end(1, attempt), onto=played).texts == ["assistant: kept"]


@pytest.mark.rule("RA5.fence")
def test_an_interruption_stops_the_worker_of_the_run_and_its_end_does_not():
    stopped = play(ask(), start(1), interrupt())
    assert [effect.run_id for effect in stopped.effects[-1] if isinstance(effect, Cancel)] == [run_id(1)]
    assert play(ask(), start(1), end(1)).effects[-1] == ()


@pytest.mark.rule("RA5.adopt", "RA5.react")
def test_a_second_response_answers_the_pending_run_that_opens_with_it():
    played = play(ask(), ask(), start(), start())
    assert played.opened == [1, 4]
    assert played.state.speech.response.run_id == run_id(2)
    assert [type(effect) for effect in played.effects[-1]] == [Cancel]

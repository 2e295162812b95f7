"""Recordings of conversations that happen elsewhere: frames are folded without effects (R4.5, RA5.recording)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    bot_speaks,
    bot_stops,
    cancel,
    committed,
    context,
    effects_of,
    end,
    finish,
    hear,
    interrupt,
    mirror,
    play,
    result,
    run_id,
    settings,
    speak,
    start,
    stop,
    tokens,
    update,
)

RECORDING = context("hello", react=False)


@pytest.mark.rule("R4.5", "RA5.recording")
@pytest.mark.parametrize("asking", [ask(), append("x", run_llm=True), update("x", run_llm=True), hear("x")])
def test_a_recording_notes_who_asks_and_opens_no_run(asking):
    played = play(RECORDING, asking, asking)
    assert (played.asked, played.opened) == ([2, 3], [])
    assert played.effects == [(), (), ()]
    assert (played.state.runs.open, played.state.runs.wanted) == (None, None)


@pytest.mark.rule("R4.5", "RA5.recording")
def test_the_frame_that_opens_a_recording_may_ask_and_is_noted():
    played = play(context("hello", react=False, run_llm=True))
    assert (played.asked, played.opened, played.effects) == ([1], [], [()])


@pytest.mark.rule("RA5.recording")
def test_everything_is_folded_in_a_recording():
    played = play(
        RECORDING,
        [speak(), hear("what is it like"), stop()],
        [start(), tokens("let me ", "see"), announce("a", "b"), end()],
        [begin("a"), begin("b", sync=False), result("a", 1)],
        [start(), tokens("it is"), interrupt(heard_text="it"), cancel("b")],
    )
    assert set(played.outcomes) == {"applied"}
    assert played.texts[:5] == [
        "user: hello",
        "user: what is it like",
        "assistant: let me see",
        "assistant calls a(a)",
        "tool a: 1",
    ]
    assert played.texts[7] == "assistant: it"
    assert played.asked == [4, 12]
    assert [effects for effects in played.effects if effects] == []


@pytest.mark.rule("R4.5", "R4.1")
def test_debts_are_noted_where_they_are_paid():
    played = play(RECORDING, bot_speaks(), begin("a"), result("a", 1), bot_stops(), bot_stops())
    assert played.asked == [5]
    played = play(RECORDING, speak(), begin("a"), result("a", 1), stop(), stop())
    assert played.asked == [5]


@pytest.mark.rule("R4.5", "R3.7")
def test_groups_count_in_a_recording():
    played = play(RECORDING, announce("a", "b"), [begin("a"), begin("b")], [result("a", 1), result("b", 1)])
    assert played.asked == [6]


@pytest.mark.rule("RA5.recording", "RA5.react")
@pytest.mark.parametrize("closing", [interrupt(), cancel("a"), result("a", 1), finish()])
def test_nobody_is_told_to_stop_in_a_recording(closing):
    played = play(RECORDING, begin("a"), start(), closing)
    assert played.became == "applied"
    assert effects_of(played) == []


@pytest.mark.rule("RA5.recording")
@pytest.mark.parametrize("said", [[append("x")], [update("x")], [settings(x=1)], [finish(), append("x")]])
def test_only_a_context_frame_ends_a_recording(said):
    assert play(RECORDING, said, ask()).opened == []


@pytest.mark.rule("RA5.recording")
def test_a_later_context_frame_ends_a_recording():
    assert effects_of(play(RECORDING, context("anew", run_llm=True))) == ["run 2"]
    assert effects_of(play(RECORDING, context("anew"), ask())) == ["run 3"]


@pytest.mark.rule("R4.5")
def test_what_a_recording_noted_does_not_start_when_it_ends():
    played = play(RECORDING, ask(), context("anew"), append("x"), answer("y"))
    assert played.opened == []
    assert [effects for effects in played.effects if effects] == []


@pytest.mark.rule("R4.5", "RA5.recording")
@pytest.mark.parametrize("closing", [end(1), end(1, finish_reason="error")])
def test_a_run_that_was_remembered_before_does_not_start_in_a_recording(closing):
    played = play(ask(), start(1), ask(), RECORDING, closing)
    assert played.effects[3:] == [(), ()]
    assert played.opened == [1]


@pytest.mark.rule("RA5.recording")
def test_a_response_in_a_recording_answers_no_run():
    played = play(RECORDING, ask(), answer("hi"), start(2))
    assert played.texts == ["user: hello", "assistant: hi"]
    assert played.became == "run_over"


@pytest.mark.rule("RA5.recording", "RA5.commit")
def test_a_context_that_becomes_a_recording_hands_out_nothing_of_what_it_commits():
    played = play(ask(), start(1), announce("a", run=1), RECORDING, end(1))
    assert effects_of(played) == []
    assert effects_of(play(ask(), committed("a", run=1), RECORDING, cancel("a"))) == []


ELSEWHERE = settings(answered_elsewhere=True)


@pytest.mark.rule("R4.5")
@pytest.mark.parametrize("asking", [ask(), append("x", run_llm=True), update("x", run_llm=True), hear("x")])
def test_where_the_model_is_run_elsewhere_a_request_is_noted_and_no_run_opens(asking):
    played = play(ELSEWHERE, asking, start(), tokens("an answer"), end())
    assert (played.asked, played.opened) == ([2], [])
    assert [effects for effects in played.effects if effects] == []
    assert played.state.runs.open is None
    assert played.texts[-1] == "assistant: an answer"


@pytest.mark.rule("R4.5")
@pytest.mark.parametrize("said", [False, None, "yes", 1])
def test_only_true_says_that_the_model_is_run_elsewhere(said):
    assert play(settings(answered_elsewhere=said), ask()).opened == [2]


@pytest.mark.rule("R4.5")
def test_once_the_model_is_run_here_again_requests_open_runs():
    assert play(ELSEWHERE, ask(), settings(answered_elsewhere=None), ask()).opened == [4]


@pytest.mark.rule("R4.5")
@pytest.mark.regression("fold 2")
@pytest.mark.parametrize(
    "handed_over",
    [ELSEWHERE, context("one", settings={"answered_elsewhere": True})],
    ids=["settings", "context"],
)
def test_a_pending_run_does_not_start_once_the_model_is_run_elsewhere(handed_over):
    played = play(ask(), ask(), handed_over, start(1), end(1))
    assert played.opened == [1]
    assert played.state.runs.wanted is None
    assert [effects for effects in played.effects if effects] == [played.effects[0]]


@pytest.mark.rule("R4.5", "R7.5")
@pytest.mark.regression("fold 2")
def test_what_the_pending_run_held_is_written_once_the_model_is_run_elsewhere():
    played = play(ask(), append("two", run_llm=True, second_input="coalesce"), ELSEWHERE)
    assert played.texts == ["user: two"]
    assert played.opened == [1]


@pytest.mark.rule("R4.5", "R4.1")
@pytest.mark.parametrize(
    "said", [settings(temperature=1), context("x", settings={"answered_elsewhere": True})]
)
def test_deferred_runs_do_not_start_once_the_model_is_run_elsewhere_and_those_deferred_later_are_noted(said):
    before = play(begin("a"), begin("b"), bot_speaks(), result("a", 1), ELSEWHERE, bot_stops())
    assert before.asked == []
    later = play(begin("a"), bot_speaks(), ELSEWHERE, result("a", 1), said, bot_stops())
    assert later.asked == [6]


@pytest.mark.rule("RA5.counted")
@pytest.mark.regression("fold 2")
def test_what_was_noted_while_a_run_is_open_outlives_that_run():
    played = play(ask(), ELSEWHERE, ask(), start(1), end(1))
    assert played.state.runs.noted == run_id(3)
    assert play(start(), onto=played).state.speech.response.counts_as == run_id(3)


@pytest.mark.rule("RA5.counted")
@pytest.mark.regression("fold 2")
@pytest.mark.parametrize("between", [mirror("other"), ELSEWHERE, RECORDING, interrupt(), finish()])
def test_what_was_noted_waits_for_its_answer_whatever_drops_pending_runs(between):
    assert play(ELSEWHERE, ask(), between, start()).state.speech.response.counts_as == run_id(2)


@pytest.mark.rule("RA5.counted")
def test_a_run_that_is_requested_here_takes_the_place_of_the_noted_one():
    here = play(ELSEWHERE, ask(), settings(answered_elsewhere=None), ask(), answer("x"), start())
    assert here.opened == [4]
    assert here.state.speech.response.counts_as == run_id(8)


@pytest.mark.rule("RA5.counted")
def test_an_answer_counts_as_the_run_that_was_noted_last_and_the_next_one_as_its_own():
    played = play(RECORDING, ask(), ask(), start())
    assert played.state.speech.response.counts_as == run_id(3)
    again = play(tokens("one"), end(), start(), onto=played)
    assert again.state.speech.response.counts_as == run_id(7)
    assert again.state.runs.noted is None


@pytest.mark.rule("RA5.counted")
def test_what_is_asked_while_an_answer_comes_is_noted_for_the_next_one():
    played = play(RECORDING, ask(), start(), tokens("a"), ask(), tokens("b"))
    assert (played.state.speech.response.counts_as, played.state.runs.noted) == (run_id(2), run_id(5))
    assert play(end(), start(), onto=played).state.speech.response.counts_as == run_id(5)


@pytest.mark.rule("RA5.counted", "RA5.adopt")
def test_an_answer_that_belongs_to_a_run_counts_as_that_alone():
    assert play(ask(), start()).state.speech.response.counts_as is None
    assert play(start()).state.speech.response.counts_as == run_id(1)


@pytest.mark.rule("R4.5")
@pytest.mark.parametrize(
    "again", [context(react=False), mirror(None, react=False)], ids=lambda frame: frame.type
)
def test_a_recording_that_is_made_one_again_owes_no_run(again):
    owing = play(begin("a"), speak(), context(react=False), begin("b", sync=False), result("b", 1))
    assert owing.state.runs.owed_to_turn
    assert play(again, stop(), onto=owing).asked == []

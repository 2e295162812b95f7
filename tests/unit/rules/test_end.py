"""The end of a context closes all open work, and some frames open the context again (R1.6)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    bot_speaks,
    break_off,
    cancel,
    context,
    end,
    finish,
    hear,
    interim,
    interrupt,
    play,
    result,
    speak,
    start,
    stop,
    think,
    thinking,
    thought,
    tokens,
    update,
)

from frameledger.effects import RunInference
from frameledger.evolve.changes import CallSettled, RunClosed
from frameledger.frames import TranslationFrame

ENDS = pytest.mark.parametrize("ending", [finish(), break_off()], ids=["EndFrame", "CancelFrame"])


@ENDS
@pytest.mark.rule("R1.6")
def test_the_end_writes_what_was_said_and_then_what_was_heard_and_then_cancels_calls_in_their_order(ending):
    played = play(
        announce("b"),
        begin("a", sync=False),
        begin("b"),
        start(),
        tokens("I was"),
        speak(),
        hear("but I"),
        ending,
    )
    assert played.texts[:5] == [
        "assistant calls a(a)",
        played.texts[1],
        "assistant calls b(b)",
        "tool b: CANCELLED",
        "assistant: I was",
    ]
    assert played.texts[5] == "user: but I"
    assert played.messages[6]["role"] == "developer"
    assert "CANCELLED" in played.messages[6]["content"]
    assert [change.tool_call_id for change in played.changes if isinstance(change, CallSettled)] == ["a", "b"]
    assert {change.end for change in played.changes if isinstance(change, CallSettled)} == {"cancelled"}
    assert (played.asked, played.state.calls.open, played.state.turn) == ([], {}, None)


@ENDS
@pytest.mark.rule("R1.6")
def test_the_end_forgets_calls_that_have_not_started(ending):
    played = play(ask(), start(1), announce("a", run=1), end(1), ending, begin("a", attempt=1))
    assert (played.became, played.messages) == ("call_forgotten", [])
    plain = play(announce("a"), ending, begin("a"))
    assert (plain.became, plain.messages) == ("call_forgotten", [])


@ENDS
@pytest.mark.rule("R1.6")
def test_the_end_closes_the_open_run_and_drops_the_remembered_one(ending):
    played = play(ask(), start(1), tokens("half", run=1), ask(), ending, tokens("late", run=1), end(1))
    assert played.texts == ["assistant: half"]
    assert played.reasons[-2:] == ["run_over", "run_over"]
    assert [change.end for change in played.steps[4].changes if isinstance(change, RunClosed)] == [
        "context_ended"
    ]
    assert played.opened == [1]
    assert play(append("x"), onto=played).opened == [1]


@ENDS
@pytest.mark.rule("R1.6")
def test_the_end_drops_debts(ending):
    owed_to_turn = play(begin("a"), speak(), result("a", 1), ending, speak(), stop(), stop())
    owed_to_bot = play(begin("a"), bot_speaks(), result("a", 1), ending, append("x"), bot_speaks())
    assert (owed_to_turn.asked, owed_to_bot.asked) == ([], [])
    assert not owed_to_turn.state.runs.owed_to_turn
    assert not owed_to_bot.state.runs.owed_to_bot


@ENDS
@pytest.mark.rule("R1.6")
def test_the_end_drops_an_open_thought_and_an_interim_and_runs_nothing(ending):
    played = play(ask(), start(1), think(1), thinking("hm", run=1), speak(), interim(), ending)
    assert (played.messages, played.asked) == ([], [1])
    assert not any(isinstance(effect, RunInference) for effect in played.effects[-1])
    late = play(thought("sig", run=1), stop(), onto=played)
    assert late.reasons[-2:] == ["run_over", "no_open_turn"]


@ENDS
@pytest.mark.rule("R1.6")
def test_what_arrives_late_is_folded_and_asks_for_nothing(ending):
    played = play(
        begin("a"), ending, hear("late"), result("a", 1), cancel("a", run_llm=True), answer("words")
    )
    assert played.texts == [
        "assistant calls a(a)",
        "tool a: CANCELLED",
        "user: late",
        "assistant: words",
    ]
    assert played.reasons[3:5] == ["call_settled", "call_settled"]
    assert (played.asked, played.opened) == ([], [])


@ENDS
@pytest.mark.rule("R1.6")
def test_a_call_that_starts_and_settles_after_the_end_is_folded_and_asks_for_nothing(ending):
    played = play(ending, begin("a"), result("a", 1, run_llm=True), begin("b"), result("b", 1, says=True))
    assert [message["role"] for message in played.messages] == ["assistant", "tool"] * 2
    assert (played.outcomes, played.asked) == (["applied"] * 5, [])


@ENDS
@pytest.mark.rule("R1.6")
@pytest.mark.parametrize("again", [finish(), break_off()])
def test_a_second_end_is_ignored(ending, again):
    played = play(append("x"), ending, again)
    assert (played.became, played.changes, played.texts) == ("context_ended", (), ["user: x"])


@ENDS
@pytest.mark.rule("R1.6")
def test_an_end_settles_and_writes_what_began_after_an_earlier_one(ending):
    played = play(finish(), begin("a"), start(), tokens("late"), ending)
    assert played.texts == ["assistant calls a(a)", "tool a: CANCELLED", "assistant: late"]
    assert (played.asked, played.state.calls.open) == ([], {})


@ENDS
@pytest.mark.rule("R1.6")
@pytest.mark.parametrize("late", [begin("a"), start(), think(), bot_speaks()], ids=lambda frame: frame.type)
def test_an_end_is_applied_as_long_as_anything_has_come_after_an_earlier_one(ending, late):
    assert play(finish(), late, ending, ending).reasons[2:] == [None, "context_ended"]


@ENDS
@pytest.mark.rule("R1.6", "R3.5")
def test_the_end_settles_a_call_whose_place_was_replaced_without_a_message(ending):
    played = play(begin("a"), update("new"), ending)
    assert (played.texts, played.state.calls.open) == (["user: new"], {})


@ENDS
@pytest.mark.rule("R1.6")
@pytest.mark.parametrize(
    ("opens", "asks"),
    [
        (ask(), True),
        (append("x", run_llm=True), True),
        (append("x"), False),
        (update(), False),
        (update("x", run_llm=True), True),
        (context("x"), False),
        (context(run_llm=True), True),
        (speak(), False),
    ],
)
def test_these_open_the_context_again(ending, opens, asks):
    played = play(ending, opens)
    assert played.asked == ([2] if asks else [])
    assert any(isinstance(effect, RunInference) for effect in played.effects[-1]) == asks
    assert play(hear("hi"), stop(), onto=played).asked != played.asked


@ENDS
@pytest.mark.rule("R1.6")
@pytest.mark.parametrize(
    "late",
    [hear("x"), begin("a"), start(), bot_speaks(), interrupt(), TranslationFrame(text="x"), interim("x")],
)
def test_nothing_else_opens_the_context_again(ending, late):
    played = play(ending, late, hear("hi"))
    assert played.asked == []
    assert played.texts[-1] == "user: hi"


@pytest.mark.rule("R1.6")
def test_a_first_end_is_applied_even_in_an_empty_context():
    played = play(finish())
    assert (played.became, played.messages, played.effects) == ("applied", [], [()])


@pytest.mark.rule("R1.6")
def test_the_end_closes_a_turn_that_waits_and_its_late_words_are_still_written():
    played = play(speak(), hear("one"), interim("two"), stop(), finish(), hear("two"))
    assert (played.texts, played.asked) == (["user: one", "user: two"], [])

"""Runs that results and cancels request while somebody speaks are deferred, moved, and opened once (R4.1)."""

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
    context,
    finish,
    hear,
    interim,
    play,
    result,
    speak,
    start,
    stop,
    update,
)

ASKING = {
    "a result": [begin("a"), result("a", 1)],
    "a result with a word": [begin("a"), result("a", None, says=True)],
    "news": [begin("a", sync=False), result("a", 1, final=False)],
    "a deadline": [begin("a"), cancel("a", run_llm=True)],
}


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING.keys())
def test_a_run_asked_for_while_the_user_speaks_is_paid_by_the_stop_if_no_word_was_heard(asking):
    played = play(speak(), asking)
    assert played.asked == []
    assert play(stop(), onto=played).asked == [4]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING.keys())
def test_a_run_asked_for_while_the_user_speaks_is_paid_by_the_turns_own_run(asking):
    assert play(speak(), asking, hear("hi"), stop()).asked == [5]
    assert play(speak(), hear("hi"), asking, stop()).asked == [5]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING.keys())
def test_a_run_asked_for_while_the_bot_speaks_is_paid_by_its_stop(asking):
    played = play(bot_speaks(), asking)
    assert played.asked == []
    assert play(bot_stops(), bot_stops(), onto=played).asked == [4]


@pytest.mark.rule("R4.1")
def test_a_call_that_turns_out_to_be_asynchronous_asks_like_the_result_that_waited():
    waits = [announce("a", "b"), begin("a"), result("a", 1)]
    assert play(waits, bot_speaks(), begin("b", sync=False), bot_stops()).asked == [6]
    assert play(waits, speak(), begin("b", sync=False), hear("hi"), stop()).asked == [7]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize(
    ("given", "paying", "paid"),
    [
        ([speak(), interim(), stop()], [stop()], 6),
        ([speak(), interim(), stop()], [hear("late")], 6),
        ([speak(), hear("hi"), interim(), stop()], [stop()], 7),
        ([speak(), hear("hi"), interim(), stop()], [hear("late")], 7),
        ([speak(), interim(), stop()], [interim(), hear("late")], 7),
    ],
)
def test_a_turn_that_waits_for_its_words_is_owed_to(given, paying, paid):
    played = play(given, begin("a"), result("a", 1))
    assert played.asked == []
    assert play(paying, onto=played).asked == [paid]


@pytest.mark.rule("R4.1")
def test_a_debt_waits_for_words_that_are_pending_at_the_stop():
    played = play(speak(), begin("a"), result("a", 1), interim(), stop())
    assert played.asked == []
    assert play(stop(), onto=played).asked == [6]
    assert play(hear("late"), onto=played).asked == [6]


@pytest.mark.rule("R4.1")
def test_a_stopped_turn_of_which_nothing_was_heard_holds_nobody_up():
    assert play(speak(), stop(), begin("a"), result("a", 1)).asked == [4]


@pytest.mark.rule("R4.1")
def test_the_stop_that_paid_is_not_followed_by_a_second_payment():
    played = play(speak(), begin("a"), result("a", 1), stop(), stop())
    assert played.asked == [4]


@pytest.mark.rule("R4.1", "R1.4")
def test_words_that_come_after_the_stop_paid_ask_for_themselves():
    assert play(speak(), begin("a"), result("a", 1), stop(), hear("late")).asked == [4, 5]


@pytest.mark.rule("R4.1", "R1.5")
def test_a_debt_to_a_turn_that_closes_without_words_goes_to_the_next_turn():
    played = play(speak(), interim(), stop(), begin("a"), result("a", 1), speak())
    assert played.asked == []
    assert play(stop(), onto=played).asked == [7]
    assert play(hear("hi"), stop(), onto=played).asked == [8]


@pytest.mark.rule("R4.1", "R1.5")
def test_a_debt_to_a_waiting_turn_is_paid_when_the_next_one_closes_it():
    played = play(speak(), hear("hi"), interim(), stop(), begin("a"), result("a", 1), speak(), stop())
    assert played.asked == [7]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize("paid", [[speak(), stop()], [bot_speaks(), bot_stops()]])
def test_many_debts_are_one(paid):
    begins, ends = paid
    results = [result("a", 1), cancel("b", run_llm=True), result("c", 1)]
    played = play([begin(c) for c in "abc"], begins, results, ends)
    assert played.asked == [8]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize("said", [append("and"), hear("and"), update("anew")])
def test_the_bot_goes_on_speaking_whatever_the_user_says_after_its_words(said):
    played = play(bot_speaks(), answer("one"), said)
    assert played.state.speech.bot_since == 1


@pytest.mark.rule("R4.1")
def test_a_debt_to_the_bot_moves_to_the_user_who_speaks_by_then():
    played = play(bot_speaks(), begin("a"), result("a", 1), speak(), bot_stops())
    assert played.asked == []
    assert (played.state.runs.owed_to_turn, played.state.runs.owed_to_bot) == (True, False)
    assert play(stop(), onto=played).asked == [6]
    assert play(hear("hi"), stop(), bot_stops(), onto=played).asked == [7]


@pytest.mark.rule("R4.1")
def test_a_debt_to_the_bot_moves_to_a_turn_that_waits_for_its_words():
    played = play(bot_speaks(), begin("a"), result("a", 1), speak(), interim(), stop(), bot_stops())
    assert played.asked == []
    assert play(hear("hi"), onto=played).asked == [8]


@pytest.mark.rule("R4.1")
def test_who_speaks_first_does_not_matter_while_both_do():
    for both in ([bot_speaks(), speak()], [speak(), bot_speaks()]):
        played = play(both, begin("a"), result("a", 1), bot_stops())
        assert played.asked == []
        assert play(stop(), onto=played).asked == [6]


@pytest.mark.rule("R4.1")
def test_the_stop_pays_what_is_owed_to_the_turn_even_while_the_bot_speaks():
    assert play(speak(), bot_speaks(), begin("a"), result("a", 1), stop(), bot_stops()).asked == [5]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize("paying", [[stop()], [hear("hi"), stop()], [interim(), stop(), hear("hi")]])
def test_what_was_paid_is_not_paid_again_while_the_run_waits_for_another_one(paying):
    played = play(ask(), begin("a"), speak(), result("a", 1), paying)
    last = len(played.steps)
    assert (played.asked, played.opened) == ([1, last], [1])
    assert play(speak(), stop(), onto=played).asked == [1, last]


@pytest.mark.rule("R4.1", "R4.2")
def test_the_turns_own_run_pays_also_what_is_owed_to_the_bot():
    played = play(bot_speaks(), begin("a"), result("a", 1), speak(), hear("hi"), stop(), bot_stops())
    assert played.asked == [6]


@pytest.mark.rule("R4.1")
def test_a_turn_that_says_nothing_leaves_what_is_owed_to_the_bot():
    assert play(bot_speaks(), begin("a"), result("a", 1), speak(), stop(), bot_stops()).asked == [6]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize(
    "asking", [ask(), append("hi", run_llm=True), update("hi", run_llm=True), context(run_llm=True)]
)
def test_clients_ask_at_once_whoever_speaks(asking):
    assert play(speak(), hear("so"), bot_speaks(), asking).asked == [4]


@pytest.mark.rule("R4.1", "R1.4")
def test_words_outside_any_turn_ask_at_once_while_the_bot_speaks():
    assert play(bot_speaks(), hear("hi")).asked == [2]


@pytest.mark.rule("R4.1")
@pytest.mark.parametrize("silent", [result("a", None), result("a", 1, run_llm=False), cancel("a")])
def test_what_asks_for_nothing_leaves_no_debt(silent):
    assert play(speak(), bot_speaks(), begin("a"), silent, bot_stops(), stop()).asked == []


@pytest.mark.rule("R4.1", "R3.7")
def test_a_result_that_waits_for_its_group_leaves_no_debt_yet():
    played = play(announce("a", "b"), begin("a"), begin("b"), speak(), result("a", 1), stop())
    assert played.asked == []
    assert play(result("b", 1), onto=played).asked == [7]


@pytest.mark.rule("R4.1")
def test_a_debt_is_no_remembered_run():
    played = play(ask(), start(1), bot_speaks(), begin("a"), result("a", 1), answer("so", run=1)[1:])
    assert (played.asked, played.opened) == ([1], [1])
    assert play(bot_stops(), onto=played).opened == [1, 8]


@pytest.mark.rule("R4.1")
def test_the_stop_of_another_speech_pays_nothing():
    played = play(
        bot_speaks(), bot_stops(), bot_speaks(), begin("a"), result("a", 1), bot_stops(opened_version=1)
    )
    assert played.became == "target_over"
    assert play(bot_stops(opened_version=3), onto=played).asked == [7]


@pytest.mark.rule("R4.1")
def test_the_stop_of_another_turn_pays_nothing():
    played = play(speak(), hear("x"), stop(), speak(), begin("a"), result("a", 1), stop(opened_version=1))
    assert (played.became, played.asked) == ("target_over", [3])
    assert play(stop(opened_version=4), onto=played).asked == [3, 8]


@pytest.mark.rule("R4.1")
def test_a_bot_that_starts_twice_stops_once():
    twice = [bot_speaks(), bot_speaks(), begin("a"), result("a", 1)]
    assert play(twice, bot_stops()).asked == [5]
    assert play(twice, bot_stops(opened_version=1)).asked == [5]


@pytest.mark.rule("R4.1", "R1.6")
@pytest.mark.parametrize("begins", [speak(), bot_speaks()])
def test_an_end_drops_all_debts_and_all_speaking(begins):
    ended = play(begins, begin("a"), result("a", 1), finish(), bot_stops(), stop(), append("again"))
    assert ended.asked == []
    assert play(begin("b"), result("b", 1), onto=ended).asked == [9]


@pytest.mark.rule("R4.1", "R1.6")
def test_nothing_is_owed_for_what_comes_after_an_end():
    played = play(finish(), bot_speaks(), begin("a"), result("a", 1), append("again"), bot_stops())
    assert played.asked == []

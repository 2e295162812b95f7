"""What an interruption stops, what it leaves, and which runs it defers to the user's turn (R4.1.cough, R5.7)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    append,
    ask,
    begin,
    bot_speaks,
    bot_stops,
    cancel,
    committed,
    effects_of,
    end,
    finish,
    hear,
    in_background,
    interim,
    interrupt,
    play,
    result,
    speak,
    start,
    stop,
    tokens,
)

from frameledger.evolve.changes import CallInterrupted, CallKey, CallSettled
from frameledger.ids import ToolCallId, Version

# A cough: what an interruption inside an open turn takes away is owed to the end of that turn.

LOSES = {
    "a debt to the bot": [bot_speaks(), begin("a"), result("a", 1)],
    "the remembered run": [ask(), start(1), append("x", run_llm=True)],
    "a run remembered behind a committed call": [ask(), committed("a", run=1), ask()],
    "a run of which nothing was folded": [append("x"), append("y"), ask()],
    "the wait for a call that has to stop": [announce("a", "b"), [begin("a"), begin("b")], result("a", 1)],
    "the wait for a call that has not started": [announce("a", "b"), begin("a"), result("a", 1)],
    "news that wait for a call that has to stop": [
        [announce("a", "b"), begin("a", sync=False), begin("b")],
        result("a", 1, final=False),
    ],
}
loses = pytest.mark.parametrize("given", LOSES.values(), ids=LOSES.keys())


@pytest.mark.rule("R4.1.cough")
@loses
def test_a_cough_loses_no_answer(given):
    coughs = play(given, speak(), interrupt())
    before = coughs.asked
    stopped = play(stop(), onto=coughs)
    assert stopped.asked == [*before, len(stopped.steps)]
    assert play(bot_stops(), stop(), onto=stopped).asked == stopped.asked


@pytest.mark.rule("R4.1.cough")
@loses
def test_the_turns_own_run_answers_too_what_a_cough_took_away(given):
    spoken = play(given, speak(), hear("well"), interrupt())
    stopped = play(stop(), onto=spoken)
    assert stopped.asked == [*spoken.asked, len(stopped.steps)]
    assert play(bot_stops(), onto=stopped).asked == stopped.asked


@pytest.mark.rule("R4.1.cough")
@loses
@pytest.mark.parametrize(
    "turn",
    [[speak(), interim(), stop()], [speak(), hear("well"), interim(), stop()]],
    ids=["interim", "words"],
)
def test_a_turn_that_waits_for_its_words_is_owed_to_as_well(given, turn):
    waits = play(given, turn, interrupt())
    stopped = play(stop(), onto=waits)
    assert stopped.asked == [*waits.asked, len(stopped.steps)]


@pytest.mark.rule("R4.1.cough")
@pytest.mark.parametrize("given", [LOSES["a run of which nothing was folded"], LOSES["the remembered run"]])
def test_a_stopped_turn_is_open_until_its_words_or_a_second_stop_come(given):
    waits = play(given, speak(), stop(), interrupt())
    stopped = play(stop(), onto=waits)
    assert stopped.asked == [*waits.asked, len(stopped.steps)]


@pytest.mark.rule("R4.1", "R4.3")
@loses
def test_an_interruption_outside_a_turn_is_meant(given):
    stopped = play(given, interrupt())
    assert play(bot_stops(), speak(), stop(), onto=stopped).asked == stopped.asked


@pytest.mark.rule("R4.1.cough")
@pytest.mark.parametrize(
    "response", [[start(1), tokens("so", run=1)], [start(1)], [start()], [start(), tokens("so")]]
)
def test_an_answer_that_had_begun_is_not_owed(response):
    assert play(ask(), response, speak(), interrupt(), stop()).asked == [1]


@pytest.mark.rule("R4.1.cough")
def test_all_that_one_interruption_takes_away_is_one_debt():
    given = [bot_speaks(), begin("a"), result("a", 1), announce("b", "c"), begin("b"), ask()]
    assert play(given, speak(), interrupt(), interrupt(), stop(), stop()).asked == [6, 10]


@pytest.mark.rule("R4.1.cough")
def test_an_interruption_leaves_what_is_owed_to_the_turn_already():
    assert play(speak(), begin("a"), result("a", 1), interrupt(), stop()).asked == [5]


@pytest.mark.rule("R4.1.cough")
def test_an_interruption_that_takes_nothing_away_owes_nothing():
    assert play(speak(), interrupt(), stop()).asked == []
    assert play(begin("a"), speak(), interrupt(), stop()).asked == []
    assert play(announce("a"), speak(), interrupt(), stop()).asked == []


@pytest.mark.rule("R4.1.cough", "R5.7")
def test_a_wait_for_calls_that_go_on_goes_on():
    given = [announce("a", "b"), begin("a", sync=False), begin("b", sync=False), result("a", 1)]
    played = play(given, speak(), interrupt(), stop())
    assert played.asked == []
    assert play(result("b", 1), onto=played).asked == [8]


@pytest.mark.rule("R4.1")
def test_an_interruption_drops_the_debt_to_the_bot_and_not_the_next_one():
    dropped = play(bot_speaks(), begin("a"), result("a", 1), interrupt())
    assert play(bot_stops(), onto=dropped).asked == []
    assert play(begin("b"), result("b", 1), bot_stops(), onto=dropped).asked == [7]


@pytest.mark.rule("R4.1.cough", "R4.2")
def test_a_run_that_starts_pays_what_a_cough_left():
    assert play(ask(), speak(), interrupt(), ask(), stop()).asked == [1, 4]


@pytest.mark.rule("R4.1.cough", "R1.6")
def test_an_end_drops_what_a_cough_left():
    assert play(ask(), speak(), interrupt(), finish(), speak(), stop()).asked == [1]


@pytest.mark.rule("R2.6")
def test_an_interruption_leaves_the_users_words_alone():
    played = play(speak(), hear("one"), interrupt(), hear("two"), stop())
    assert (played.texts, played.asked) == (["user: one two"], [5])


# What happens to calls.


@pytest.mark.rule("R5.7")
def test_an_interruption_stops_what_can_be_cancelled_and_spares_the_rest():
    played = play(begin("a"), begin("b", sync=False), interrupt())
    assert effects_of(played) == ["stop a"]
    assert played.changes == (CallInterrupted(CallKey(Version(1), 0), ToolCallId("a")),)
    assert played.texts[1] == "tool a: IN_PROGRESS"
    assert set(played.state.calls.open) == {"a", "b"}


@pytest.mark.rule("R5.7")
def test_an_interruption_forgets_what_was_announced_and_not_started():
    played = play(announce("a", "b"), begin("b"), interrupt())
    assert [(c.tool_call_id, c.end) for c in played.changes if isinstance(c, CallSettled)] == [
        ("a", "forgotten")
    ]
    assert set(played.state.calls.open) == {"b"}


@pytest.mark.rule("R5.7", "R3.5")
def test_the_worker_publishes_the_cancel_and_no_run_is_asked_for():
    played = play(ask(), committed("a", run=1), begin("a", attempt=1), interrupt(), cancel("a", attempt=1))
    assert played.texts == ["assistant calls a(a)", "tool a: CANCELLED"]
    assert played.asked == [1]


OWED = [ask(), committed("a", "b", run=1), begin("a", attempt=1), begin("b", attempt=1)]


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("word", [{}, {"run_llm": True}, {"says": True}])
def test_what_was_done_before_the_worker_could_stop_is_written_and_asks_for_nothing(word):
    alone = [ask(), committed("a", run=1), begin("a", attempt=1)]
    played = play(alone, interrupt(), result("a", {"paid": True}, attempt=1, **word))
    assert played.texts[-1] == 'tool a: {"paid":true}'
    assert played.asked == [1]


@pytest.mark.rule("R3.7")
def test_a_result_that_names_no_attempt_is_a_result_like_any():
    assert play(begin("a"), interrupt(), result("a", 1)).asked == [3]


@pytest.mark.rule("R3.7")
@pytest.mark.regression("fault 140")
def test_a_deadline_that_passes_as_the_worker_is_interrupted_asks_only_for_what_waited_for_the_call():
    alone = play(ask(), committed("a", run=1), begin("a", attempt=1), interrupt())
    assert play(cancel("a", attempt=1, run_llm=True), onto=alone).asked == [1]
    assert play(cancel("a", run_llm=True), onto=alone).asked == [1, 7]
    waits = play(OWED, result("a", 1, attempt=1), interrupt())
    assert play(cancel("b", attempt=1, run_llm=True), onto=waits).asked == [1, 9]


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("value", [1, None])
def test_the_result_of_an_interrupted_call_asks_for_what_waited_for_it(value):
    waits = play(OWED, result("a", 1, attempt=1), interrupt())
    assert play(result("b", value, attempt=1), onto=waits).asked == [1, 9]
    assert play(cancel("b", attempt=1), onto=waits).asked == [1]


@pytest.mark.rule("R3.7")
def test_the_results_of_two_interrupted_calls_ask_for_nothing():
    played = play(OWED, interrupt(), result("a", 1, attempt=1), result("b", 1, attempt=1))
    assert played.asked == [1]


@pytest.mark.rule("R3.7")
def test_the_result_of_an_interrupted_call_waits_for_the_rest_of_the_group():
    given = [ask(), committed("a", "b", "c", run=1), [begin(c, attempt=1) for c in "abc"]]
    waits = play(given, result("a", 1, attempt=1), interrupt(), result("b", 1, attempt=1))
    assert waits.asked == [1]
    assert play(result("c", 1, attempt=1), onto=waits).asked == [1, 11]


@pytest.mark.rule("R3.7", "R4.1.cough")
def test_a_wait_that_became_a_debt_of_the_turn_is_not_asked_for_twice():
    played = play(OWED, result("a", 1, attempt=1), speak(), interrupt(), result("b", 1, attempt=1), stop())
    assert played.asked == [1, 11]


@pytest.mark.rule("R5.7")
def test_the_result_of_a_spared_call_asks_as_ever():
    given = [ask(), committed("a", run=1), begin("a", attempt=1, sync=False), interrupt()]
    played = play(given, result("a", 1, attempt=1))
    assert in_background(played)[-1] == ("final", "a", "1")
    assert played.asked == [1, 7]


@pytest.mark.rule("R5.7")
def test_a_call_that_starts_after_the_interruption_is_not_interrupted():
    played = play(interrupt(), ask(), committed("a", run=2), begin("a", attempt=1), result("a", 1, attempt=1))
    assert played.asked == [2, 7]


@pytest.mark.rule("R5.7")
def test_a_call_is_told_to_stop_once():
    assert effects_of(play(begin("a"), interrupt(), interrupt())) == []
    assert effects_of(play(begin("a"), interrupt(), begin("b"))) == []


@pytest.mark.rule("R5.7")
def test_who_takes_over_an_interrupted_call_owes_its_cancel_too():
    given = [ask(), committed("a", run=1), begin("a", attempt=1, safe_to_retry=True), interrupt()]
    played = play(given, begin("a", attempt=2), result("a", 1, attempt=2))
    assert (played.texts[-1], played.asked) == ("tool a: 1", [1])


@pytest.mark.rule("R5.7")
def test_an_interruption_inside_a_run_closes_it_and_forgets_its_calls():
    played = play(ask(), start(1), tokens("I will", run=1), announce("a", run=1), interrupt(), end(1))
    assert played.became == "run_over"
    assert played.texts == ["assistant: I will"]
    assert play(begin("a", attempt=1), onto=played).became == "call_forgotten"


@pytest.mark.rule("R4.1.cough")
def test_a_wait_is_taken_away_with_any_of_the_calls_that_it_waits_for():
    given = [announce("a", "b", "c"), [begin(call, sync=False) for call in "ab"], result("a", 1)]
    coughed = play(given, speak(), interrupt(), stop())
    assert coughed.asked == [7]
    alone = play(given, interrupt(), speak(), stop(), result("b", None))
    assert alone.asked == [8]

"""One run at a time: which frames request one, which requests are kept, when it opens, and what ends it (R4.2-R4.4)."""

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
    fail,
    finish,
    hear,
    interrupt,
    play,
    result,
    run_id,
    settings,
    speak,
    start,
    stop,
    think,
    thinking,
    tokens,
    tools,
    update,
)

from frameledger.effects import RunInference
from frameledger.evolve.changes import RunClosed, RunOpened, RunRequested


@pytest.mark.rule("R4.3")
@pytest.mark.parametrize(
    ("frame", "asks"),
    [
        (ask(), True),
        (append("hi", run_llm=True), True),
        (append("hi", run_llm=False), False),
        (append("hi"), False),
        (append(run_llm=True), True),
        (update("hi", run_llm=True), True),
        (update("hi"), False),
        (context("hi", run_llm=True), True),
        (context("hi"), False),
        (hear("hi"), True),
        (tools("f"), False),
        (settings(x=1), False),
        (interrupt(), False),
    ],
)
def test_what_asks_opens_a_run_at_once_if_none_is_open(frame, asks):
    played = play(frame)
    assert (played.asked, played.opened) == (([1], [1]) if asks else ([], []))


@pytest.mark.rule("R4.3")
def test_asking_while_a_run_is_open_is_remembered_once():
    played = play(ask(), ask(), append("hi", run_llm=True), ask())
    assert (played.asked, played.opened) == ([1, 2, 3, 4], [1])
    answered = play(answer("yes", run=1), onto=played)
    assert answered.opened == [1, 7]
    assert play(start(2), end(2), onto=answered).opened == [1, 7]


CLOSING = {
    "its end": [end(1)],
    "its end with an error": [end(1, finish_reason="error")],
    "a fatal error": [fail(1)],
}


@pytest.mark.rule("R4.3", "RA5.request")
@pytest.mark.parametrize("closing", CLOSING.values(), ids=CLOSING.keys())
def test_the_remembered_run_starts_when_the_open_one_closes(closing):
    played = play(ask(), start(1), ask(), closing)
    assert played.opened == [1, 4]
    assert played.state.runs.open.run_id == run_id(3)
    assert played.state.runs.wanted is None


@pytest.mark.rule("R2.1", "R4.3")
def test_a_response_that_replaces_another_does_not_lose_the_remembered_run():
    played = play(ask(), start(), tokens("one"), ask(), start())
    assert played.opened == [1, 5]
    assert [change.end for change in played.changes if isinstance(change, RunClosed)] == ["replaced"]


@pytest.mark.rule("R4.3")
@pytest.mark.parametrize("dropped", [interrupt(), finish()])
def test_an_interruption_and_an_end_drop_what_was_remembered(dropped):
    played = play(ask(), start(1), ask(), dropped)
    assert played.opened == [1]
    assert played.state.runs.wanted is None
    assert play(append("hi"), answer("late", run=1), onto=played).opened == [1]


@pytest.mark.rule("RA5.request")
def test_a_remembered_run_keeps_the_id_of_the_first_who_asked_and_reads_the_context_where_it_starts():
    played = play(ask(), start(1), ask(), append("one more", run_llm=True), end(1))
    (effect,) = played.effects[-1]
    assert isinstance(effect, RunInference)
    assert (effect.run_id, effect.version) == (run_id(3), 5)
    requested = [c.run_id for step in played.steps for c in step.changes if isinstance(c, RunRequested)]
    assert requested == [run_id(1), run_id(3), run_id(3)]


@pytest.mark.rule("RA5.request")
def test_a_run_that_was_dropped_does_not_lend_its_id():
    played = play(ask(), start(1), ask(), interrupt(), ask())
    assert played.state.runs.open.run_id == run_id(5)


@pytest.mark.rule("R4.3", "RA5.commit")
@pytest.mark.parametrize(
    "out_of_the_way", [begin("b", attempt=1), begin("b"), cancel("b"), cancel("b", run_llm=True)]
)
def test_no_run_starts_while_a_committed_call_has_still_to_start(out_of_the_way):
    played = play(ask(), start(1), announce("a", "b", run=1), ask(), end(1), begin("a", attempt=1))
    assert (played.asked, played.opened) == ([1, 4], [1])
    opened = play(out_of_the_way, onto=played)
    assert opened.opened == [1, 7]
    assert opened.state.runs.open.run_id == run_id(4)


@pytest.mark.rule("R4.3")
def test_asking_while_only_a_committed_call_stands_in_the_way_is_remembered():
    played = play(ask(), committed("a", run=1), ask(), ask())
    assert (played.asked, played.opened) == ([1, 5, 6], [1])
    assert play(begin("a", attempt=1), onto=played).opened == [1, 7]


@pytest.mark.rule("R4.3")
def test_a_call_that_runs_and_one_that_is_only_announced_stand_in_nobodys_way():
    assert play(begin("a"), ask()).opened == [2]
    assert play(announce("a"), ask()).opened == [2]


@pytest.mark.rule("R4.3")
def test_a_result_that_comes_while_a_run_is_open_is_remembered():
    played = play(begin("a"), ask(), start(2), result("a", 1), end(2))
    assert (played.asked, played.opened) == ([2, 4], [2, 5])


@pytest.mark.rule("R4.3", "R1.6")
@pytest.mark.parametrize(
    "again", [ask(), append("hi", run_llm=True), update(run_llm=True), context(run_llm=True)]
)
def test_whoever_opens_the_context_again_may_ask_at_once(again):
    assert play(finish(), again).opened == [2]


# A run that starts pays the debts.


@pytest.mark.rule("R4.2")
@pytest.mark.parametrize("asking", [ask(), append("hi", run_llm=True), hear("hi")])
def test_a_run_that_starts_pays_what_is_owed_to_the_bots_stop(asking):
    played = play(bot_speaks(), begin("a"), result("a", 1), asking, bot_stops())
    assert played.asked == [4]


@pytest.mark.rule("R4.2")
def test_a_run_that_starts_pays_what_is_owed_to_the_turn():
    assert play(speak(), begin("a"), result("a", 1), ask(), stop()).asked == [4]


@pytest.mark.rule("R4.2")
def test_a_remembered_run_pays_what_is_older_than_its_start():
    played = play(ask(), start(1), bot_speaks(), begin("a"), ask(), result("a", 1), end(1), bot_stops())
    assert (played.asked, played.opened) == ([1, 5], [1, 7])


@pytest.mark.rule("R4.2")
def test_a_run_that_is_only_remembered_pays_nothing_yet():
    played = play(ask(), bot_speaks(), begin("a"), result("a", 1), ask(), bot_stops())
    assert played.asked == [1, 5, 6]
    assert play(answer("so", run=1), onto=played).opened == [1, 9]


@pytest.mark.rule("R4.2")
def test_a_debt_younger_than_the_run_stays():
    assert play(ask(), bot_speaks(), begin("a"), result("a", 1), answer("so", run=1), bot_stops()).asked == [
        1,
        8,
    ]


# Errors.


@pytest.mark.rule("R4.4")
def test_a_fatal_error_keeps_what_was_said_and_forgets_what_was_announced():
    given = [
        ask(),
        start(1),
        think(run=1),
        thinking("hm", run=1),
        tokens("so far", run=1),
        announce("a", run=1),
    ]
    played = play(given, fail(1))
    assert played.texts == ["assistant: so far"]
    assert [change.end for change in played.changes if isinstance(change, RunClosed)] == ["failed"]
    assert play(tokens("late", run=1), onto=played).became == "run_over"
    assert play(begin("a"), onto=played).became == "call_forgotten"


@pytest.mark.rule("R4.4")
def test_a_fatal_error_closes_a_run_that_nobody_claimed():
    played = play(ask(), ask(), fail(1))
    assert played.opened == [1, 3]
    assert effects_of(played) == ["stop run 1", "run 2"]


@pytest.mark.rule("R4.4")
def test_a_fatal_error_touches_no_call_that_runs_or_belongs_to_others():
    given = [announce("p"), begin("r"), ask(), start(3), announce("a", run=3)]
    played = play(given, fail(3))
    assert {call_id: call.stage for call_id, call in played.state.calls.open.items()} == {
        "p": "announced",
        "r": "running",
    }
    assert play(result("r", 1), onto=played).became == "applied"


@pytest.mark.rule("R4.4", "RA5.fence")
@pytest.mark.parametrize(
    ("attempt", "became"), [(2, "applied"), (3, "applied"), (None, "applied"), (1, "attempt_superseded")]
)
def test_a_fatal_error_comes_from_the_latest_attempt_a_later_one_or_none(attempt, became):
    played = play(ask(), start(1), start(1, 2), tokens("so", run=1, attempt=2), fail(1, attempt))
    assert played.became == became
    assert (played.state.runs.open is None) == (became == "applied")


@pytest.mark.rule("R4.4")
@pytest.mark.parametrize("given", [[ask(), start(1), end(1)], [ask(), interrupt()], []])
def test_a_fatal_error_of_a_run_that_is_over_is_ignored(given):
    played = play(given, fail(1))
    assert (played.became, played.changes) == ("run_over", ())


@pytest.mark.rule("R4.4")
def test_a_fatal_error_of_a_run_that_is_over_leaves_the_open_one():
    played = play(ask(), start(1), ask(), end(1), fail(1))
    assert played.became == "run_over"
    assert played.state.runs.open.run_id == run_id(3)


@pytest.mark.rule("R4.4")
@pytest.mark.parametrize("run", [None, 1])
def test_an_error_that_is_not_fatal_is_only_recorded(run):
    played = play(ask(), start(1), tokens("so", run=1), announce("a", run=1), fail(run, fatal=False))
    assert (played.became, played.changes) == ("applied", ())
    assert effects_of(play(end(1), onto=played)) == ["call a"]


@pytest.mark.rule("R4.4", "RA5.fence")
@pytest.mark.parametrize(
    ("given", "failing", "became"),
    [
        ([ask()], fail(1, fatal=False), "applied"),
        ([ask(), start(1)], fail(1, fatal=False), "applied"),
        ([ask(), start(1)], fail(1, 2, fatal=False), "applied"),
        ([ask(), start(1), start(1, 2)], fail(1, fatal=False), "attempt_superseded"),
        ([ask(), start(1), end(1)], fail(1, fatal=False), "run_over"),
        ([], fail("another", fatal=False), "run_over"),
    ],
)
def test_an_error_that_is_not_fatal_and_names_a_run_passes_the_fence_for_it(given, failing, became):
    assert play(given, failing).became == became


@pytest.mark.rule("R4.4")
def test_a_fatal_error_of_a_run_leaves_a_response_that_belongs_to_none():
    played = play(start(), tokens("so"), ask(), fail(3))
    assert (played.state.runs.open, played.texts) == (None, [])
    assert play(tokens(" far"), end(), onto=played).texts == ["assistant: so far"]


@pytest.mark.rule("R4.4")
def test_a_fatal_error_without_a_run_id_closes_the_response_that_names_none():
    played = play(ask(), start(), tokens("so far"), fail())
    assert played.texts == ["assistant: so far"]
    assert played.state.runs.open is None
    assert play(tokens("late"), onto=played).became == "no_open_response"


@pytest.mark.rule("R4.4")
def test_a_fatal_error_without_a_run_id_closes_a_run_of_which_nothing_was_folded():
    assert play(ask(), fail()).state.runs.open is None


@pytest.mark.rule("R4.4", "RA5.fence")
def test_a_fatal_error_without_a_run_id_leaves_a_response_that_names_its_run():
    played = play(ask(), start(1), tokens("so", run=1), fail())
    assert played.became == "run_response_open"
    assert play(end(1), onto=played).texts == ["assistant: so"]


@pytest.mark.rule("R4.4")
def test_a_fatal_error_leaves_debts_and_the_users_words():
    played = play(ask(), bot_speaks(), begin("a"), result("a", 1), speak(), hear("and I"), fail(1))
    assert played.state.runs.owed_to_bot
    assert play(stop(), onto=played).texts[-1] == "user: and I"


@pytest.mark.rule("R4.3")
def test_every_run_that_opens_was_asked_for():
    played = play(ask(), start(1), ask(), end(1), speak(), hear("x"), stop(), start(3), end(3))
    asked = {c.run_id for step in played.steps for c in step.changes if isinstance(c, RunRequested)}
    opened = [c.run_id for step in played.steps for c in step.changes if isinstance(c, RunOpened)]
    assert opened == [run_id(1), run_id(3), run_id(7)]
    assert set(opened) <= asked

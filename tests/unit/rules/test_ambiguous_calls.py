"""How calls end, and how a person resolves an ambiguous one (R3.8)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    append,
    ask,
    begin,
    bot_speaks,
    bot_stops,
    committed,
    effects_of,
    finish,
    hear,
    in_background,
    interrupt,
    play,
    result,
    speak,
    stop,
    update,
)

from frameledger.evolve.changes import CallInterrupted, CallKey, CallResolved, CallSettled
from frameledger.evolve.open_calls import AMBIGUOUS_REMEMBERED

UNSURE = {"error": "it began, and nobody knows whether it happened"}
PAID = {"paid": True}
AMBIGUOUS = [begin("a"), result("a", UNSURE, settled_as="ambiguous", run_llm=False)]
"""A call of version 1, settled by version 2."""


def resolved(call, value=PAID, **fields):
    return result(call, value, settled_as="resolved", **fields)


@pytest.mark.rule("R3.8")
@pytest.mark.parametrize(
    ("says", "end"), [(None, "done"), ("done", "done"), ("failed", "failed"), ("ambiguous", "ambiguous")]
)
@pytest.mark.parametrize("sync", [True, False])
def test_a_final_result_says_how_its_call_ended_and_nothing_else_follows_from_it(says, end, sync):
    played = play(begin("a", sync=sync), result("a", UNSURE, settled_as=says))
    [settled] = [change for change in played.changes if isinstance(change, CallSettled)]
    assert (settled.end, settled.result) == (end, UNSURE)
    usual = play(begin("a", sync=sync), result("a", UNSURE))
    assert (played.messages, played.asked) == (usual.messages, usual.asked)
    assert played.asked == [2]


@pytest.mark.rule("R3.8")
@pytest.mark.parametrize("says", ["failed", "ambiguous"])
def test_a_result_in_between_ends_nothing_whatever_it_says(says):
    played = play(begin("a", sync=False), result("a", 1, final=False, settled_as=says), result("a", 2))
    [settled] = [change for change in played.changes if isinstance(change, CallSettled)]
    assert settled.end == "done"


@pytest.mark.rule("R3.8")
@pytest.mark.parametrize("sync", [True, False])
def test_a_person_says_what_became_of_an_ambiguous_call_and_the_model_is_told_at_the_end(sync):
    given = [begin("a", sync=sync), result("a", UNSURE, settled_as="ambiguous", run_llm=False)]
    before = play(given, append("and?"))
    played = play(resolved("a"), onto=before)
    assert played.became == "applied"
    assert CallResolved(CallKey(1, 0), "a", PAID) in played.changes
    assert not played.frames_with(CallSettled)[1:]
    assert played.messages[:-1] == before.messages
    assert in_background(played)[-1] == ("final", "a", '{"paid":true}')
    assert played.opened == [4]
    assert effects_of(played) == ["run 4"]


@pytest.mark.rule("R3.8")
@pytest.mark.parametrize(
    ("value", "fields", "asks"),
    [
        (PAID, {}, True),
        (0, {}, True),
        (None, {}, False),
        (None, {"run_llm": True}, True),
        (PAID, {"run_llm": False}, False),
        (PAID, {"run_llm": False, "says": True}, True),
        (PAID, {"run_llm": True, "says": False}, False),
        (PAID, {"final": False}, True),
        (PAID, {"attempt": 1}, True),
    ],
)
def test_the_word_of_a_person_asks_like_a_result_that_waits_for_nobody(value, fields, asks):
    played = play(AMBIGUOUS, begin("other"), resolved("a", value, **fields))
    assert played.became == "applied"
    assert played.asked == ([4] if asks else [])


@pytest.mark.rule("R3.8", "R4.1")
def test_the_run_that_it_asks_for_is_owed_while_somebody_speaks():
    spoken_to = play(AMBIGUOUS, speak(), hear("so"), resolved("a"), stop())
    assert (spoken_to.asked, spoken_to.state.runs.owed_to_turn) == ([6], False)
    listening = play(AMBIGUOUS, bot_speaks(), resolved("a"), bot_stops())
    assert listening.asked == [5]


@pytest.mark.rule("R3.8")
def test_a_call_is_resolved_once():
    played = play(AMBIGUOUS, resolved("a"), resolved("a", "again"))
    assert played.reasons == [None, None, None, "call_settled"]
    assert played.changes == ()


@pytest.mark.rule("R3.8", "R3.4")
@pytest.mark.parametrize(
    ("given", "last", "reason"),
    [
        ([], resolved("a"), "call_unknown"),
        ([begin("a"), result("a", 1)], resolved("a"), "call_settled"),
        ([begin("a"), result("a", 1, settled_as="failed")], resolved("a"), "call_settled"),
        ([begin("a")], resolved("a"), "call_open_already"),
        ([*AMBIGUOUS, begin("a")], resolved("a"), "call_open_already"),
        ([*AMBIGUOUS, begin("a")], resolved("a", opened_version=1), "call_open_already"),
        ([announce("a"), interrupt()], resolved("a"), "call_forgotten"),
        (AMBIGUOUS, resolved("a", opened_version=2), "target_over"),
        (AMBIGUOUS, result("a", PAID), "call_settled"),
    ],
)
def test_what_is_no_word_about_an_ambiguous_call_is_ignored(given, last, reason):
    before = play(given)
    played = play(last, onto=before)
    assert played.became == reason
    assert played.changes == ()
    assert played.messages == before.messages
    assert played.effects[-1] == ()


@pytest.mark.rule("R3.8", "R3.1")
def test_of_two_ambiguous_calls_of_one_id_the_newest_is_meant_unless_one_is_named():
    twice = [*AMBIGUOUS, *AMBIGUOUS]
    newest = play(twice, resolved("a"))
    named = play(twice, resolved("a", opened_version=1))
    assert newest.changes[1].key == CallKey(3, 0)
    assert named.changes[1].key == CallKey(1, 0)
    assert play(resolved("a", 2), onto=newest).changes[1].key == CallKey(1, 0)


@pytest.mark.rule("R3.8")
def test_the_newest_ambiguous_calls_are_remembered():
    many = [[begin(f"c{n}"), result(f"c{n}", None, settled_as="ambiguous")] for n in range(257)]
    assert AMBIGUOUS_REMEMBERED == 256
    assert play(many, resolved("c0")).became == "call_unknown"
    assert play(many, resolved("c1")).became == "applied"


@pytest.mark.rule("R3.8", "R3.5")
def test_it_is_written_also_where_the_history_was_replaced_and_where_the_context_has_ended():
    replaced = play(begin("a"), update("new"), result("a", UNSURE, settled_as="ambiguous"), resolved("a"))
    assert replaced.reasons == [None, None, "place_replaced", None]
    assert in_background(replaced) == [("final", "a", '{"paid":true}')]
    ended = play(AMBIGUOUS, finish(), resolved("a"))
    assert (ended.became, ended.asked) == ("applied", [])
    assert in_background(ended) == [("final", "a", '{"paid":true}')]


@pytest.mark.rule("R3.4")
@pytest.mark.parametrize(("named", "became"), [(None, "applied"), (3, "applied"), (1, "target_over")])
def test_a_result_that_names_its_call_settles_no_later_one_of_the_id(named, became):
    played = play(begin("a"), result("a", 1), begin("a"), result("a", 2, opened_version=named))
    assert played.became == became


@pytest.mark.rule("R3.4")
def test_a_result_that_names_a_call_which_is_over_says_so():
    assert play(begin("a"), result("a", 1), result("a", 2, opened_version=1)).became == "target_over"


@pytest.mark.rule("R5.7")
def test_an_interruption_says_which_calls_it_owes_a_cancel():
    given = [ask(), committed("a", run=1), begin("a", attempt=1), begin("b", sync=False)]
    played = play(given, interrupt(), interrupt())
    assert played.frames_with(CallInterrupted) == [7]
    assert CallInterrupted(CallKey(3, 0), "a") in played.steps[6].changes


@pytest.mark.rule("R3.7", "R3.8", "R5.7")
def test_an_interrupted_call_whose_worker_died_is_settled_as_ambiguous_and_asks_for_nothing():
    played = play(
        *(ask(), committed("a", run=1), begin("a", attempt=1), interrupt()),
        result("a", UNSURE, settled_as="ambiguous", run_llm=False),
    )
    assert played.became == "applied"
    assert played.asked == [1]
    assert effects_of(played) == []

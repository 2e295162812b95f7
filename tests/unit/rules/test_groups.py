"""Which results request one run together, and which `run_llm` decides (R3.6, R3.7)."""

from itertools import permutations

import pytest
from tests.unit.rules.dsl import (
    announce,
    ask,
    begin,
    cancel,
    committed,
    context,
    finish,
    play,
    result,
    rewrite,
    speak,
    start,
    update,
)

# What a group is.


@pytest.mark.rule("R3.6", "R3.7")
@pytest.mark.parametrize("order", list(permutations("abc")))
def test_calls_announced_together_ask_once_when_the_last_one_settles(order):
    played = play(announce("a", "b", "c"), [begin(c) for c in "abc"], [result(c, 1) for c in order])
    assert played.asked == [7]


@pytest.mark.rule("R3.6")
@pytest.mark.parametrize("order", list(permutations("abc")))
def test_calls_that_share_a_group_id_ask_once(order):
    played = play([begin(c, group_id="g") for c in "abc"], [result(c, 1) for c in order])
    assert played.asked == [6]


@pytest.mark.rule("R3.6")
@pytest.mark.parametrize("groups", [(None, None), ("g", "h"), ("g", None)])
def test_calls_that_share_nothing_ask_each(groups):
    first, second = groups
    played = play(begin("a", group_id=first), begin("b", group_id=second), result("a", 1), result("b", 1))
    assert played.asked == [3, 4]


@pytest.mark.rule("R3.6")
def test_a_group_id_joins_calls_of_several_batches():
    played = play(
        announce("a", group_id="g"), announce("b", group_id="g"), begin("a"), begin("b"), result("a", 1)
    )
    assert played.asked == []
    assert play(result("b", 1), onto=played).asked == [6]


@pytest.mark.rule("R3.6")
def test_two_batches_without_a_group_id_are_two_groups():
    played = play(announce("a"), announce("b"), begin("a"), begin("b"), result("a", 1), result("b", 1))
    assert played.asked == [5, 6]


@pytest.mark.rule("R3.6")
def test_a_call_that_belongs_to_a_batch_and_to_a_group_id_unites_them():
    united = play(announce("a", "b"), begin("c", group_id="g"), begin("a", group_id="g"), begin("b"))
    played = play(result("a", 1), result("c", 1), onto=united)
    assert played.asked == []
    assert play(result("b", 1), onto=played).asked == [7]


# A call of a batch shares `g` with others: what was known of the batch (`a`, `b`, `e`) and what was known of `g` (`c`,
# `d`) is known of the one group that they are from then on.
BATCH = [start(), announce("a", "b", "e")]
SHARED = [begin("c", group_id="g")]
UNITES = [begin("a", group_id="g")]


@pytest.mark.rule("R3.6", "R3.7")
@pytest.mark.parametrize(
    "earlier",
    [
        [SHARED, begin("d", group_id="g"), result("d", 1, run_llm=False), BATCH],
        [SHARED, BATCH, begin("e"), result("e", 1, run_llm=False)],
    ],
    ids=["of those with the id", "of the batch"],
)
def test_a_group_that_unites_two_has_had_the_results_of_both(earlier):
    played = play(earlier, UNITES, map(cancel, "ace"))
    assert played.asked == []
    assert play(begin("b"), result("b", None), onto=played).asked == [len(played.steps) + 2]
    # They do not wait, though.
    assert play(begin("b", sync=False), onto=played).asked == []


@pytest.mark.rule("R3.6", "R3.7")
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("of_the_batch", [True, False])
def test_a_result_that_waited_in_one_of_two_groups_waits_in_the_one_that_unites_them(sync, of_the_batch):
    waiting = "e" if of_the_batch else "d"
    ids = {"group_id": None if of_the_batch else "g"}
    # A synchronous one waits for no asynchronous call.
    shared = [SHARED, begin("f", sync=False, group_id="g")] if sync else [SHARED]
    waits = [shared, BATCH, begin(waiting, sync=sync, **ids), result(waiting, 1)]
    united = play(waits, UNITES, cancel("a"), cancel("c"), [] if of_the_batch else cancel("e"))
    assert united.asked == []
    forgotten = play(start(), onto=united)
    assert forgotten.asked == [len(forgotten.steps)]


@pytest.mark.rule("R3.5", "R3.6")
@pytest.mark.parametrize(
    ("waits", "settled", "last"),
    [
        (
            [
                SHARED,
                begin("d", group_id="g"),
                result("d", 1),
                update("s"),
                BATCH,
                begin("e"),
                result("e", 1),
            ],
            ["a", "b"],
            result("c", 1),
        ),
        (
            [BATCH, begin("b"), begin("e"), result("e", 1), update("s"), SHARED, begin("d", group_id="g")]
            + [result("d", 1)],
            ["a", "c"],
            result("b", 1),
        ),
    ],
    ids=["of the batch", "of those with the id"],
)
def test_of_two_groups_that_are_united_the_newest_result_is_in_the_history(waits, settled, last):
    played = play(waits, UNITES, map(cancel, settled), last)
    assert (played.became, played.asked) == ("place_replaced", [len(played.steps)])


@pytest.mark.rule("R3.6")
def test_a_group_that_unites_two_is_known_by_the_ids_of_both_and_no_other_call_is_in_it():
    united = play(announce("a", "b", group_id="h"), begin("c", group_id="g"), begin("x"), UNITES)
    played = play(begin("d", group_id="h"), begin("e", group_id="g"), onto=united)
    [group] = {played.state.calls.open[call].group for call in "abcde"}
    assert sorted(played.state.calls.groups[group].names) == ["g", "h"]
    assert len(played.state.calls.groups) == 2
    assert play(result("x", 1), onto=played).asked == [len(played.steps) + 1]


@pytest.mark.rule("R3.6")
def test_a_group_is_known_by_every_id_that_a_call_of_it_says():
    played = play(announce("a", "b", group_id="g"), begin("a", group_id="h"), begin("b", group_id="g"))
    [group] = played.state.calls.groups.values()
    assert group.names == ("g", "h")


@pytest.mark.rule("R3.6")
def test_a_group_id_that_only_the_start_says_is_shared_with_later_calls():
    played = play(announce("a"), begin("a", group_id="g"), begin("b", group_id="g"), result("a", 1))
    assert played.asked == []
    assert play(result("b", 1), onto=played).asked == [5]


@pytest.mark.rule("R3.6")
@pytest.mark.parametrize("group_id", [None, "g"])
def test_with_group_parallel_tools_false_each_call_is_a_group_of_its_own(group_id):
    played = play(
        announce("a", "b", group_id=group_id, group_parallel_tools=False),
        begin("a", group_id=group_id),
        result("a", 1),
        begin("b", group_id=group_id),
        result("b", 1),
    )
    assert played.asked == [3, 5]


@pytest.mark.rule("R3.6")
def test_a_call_that_is_a_group_of_its_own_joins_no_group_by_its_id():
    played = play(
        announce("a", group_id="g", group_parallel_tools=False),
        [begin("b", group_id="g"), begin("a", group_id="g")],
        [result("a", 1), result("b", 1)],
    )
    assert played.asked == [4, 5]


@pytest.mark.rule("R3.6")
def test_an_announced_call_that_has_not_started_is_waited_for():
    played = play(announce("a", "b"), begin("a"), result("a", 1), begin("b"), result("b", 1))
    assert played.asked == [5]
    assert play(announce("a", "b"), begin("a", sync=False), result("a", 1)).asked == []


@pytest.mark.rule("R3.6", "RA5.commit")
def test_calls_committed_together_are_a_group():
    played = play(ask(), committed("a", "b", run=1), begin("a", attempt=1), result("a", 1, attempt=1))
    assert played.asked == [1]
    assert play(begin("b", attempt=1), result("b", 1, attempt=1), onto=played).asked == [1, 8]


@pytest.mark.rule("R3.6")
def test_nothing_synchronous_waits_for_an_asynchronous_call():
    played = play(announce("a", "b"), begin("a"), begin("b", sync=False), result("a", 1), result("b", 1))
    assert played.asked == [4, 5]


@pytest.mark.rule("R3.6")
@pytest.mark.parametrize("sync", [True, False])
def test_an_asynchronous_result_waits_for_all_others(sync):
    played = play(announce("a", "b"), begin("a", sync=False), begin("b", sync=sync), result("a", 1))
    assert played.asked == []
    assert play(result("b", 1), onto=played).asked == [5]


@pytest.mark.rule("R3.6")
def test_an_intermediate_result_asks_unless_others_are_pending():
    assert play(begin("a", sync=False), result("a", 1, final=False)).asked == [2]
    assert play(announce("a", "b"), begin("a", sync=False), result("a", 1, final=False)).asked == []


@pytest.mark.rule("R3.6")
def test_an_intermediate_result_settles_nothing():
    given = [announce("a", "b"), begin("a", sync=False), begin("b", sync=False), result("a", 1, final=False)]
    played = play(given, result("b", 1), result("a", 2))
    assert played.asked == [6]
    assert play(begin("a", sync=False), result("a", 1, final=False), result("a", 2)).asked == [2, 3]


@pytest.mark.rule("R3.6")
def test_a_synchronous_result_asks_while_asynchronous_calls_report():
    given = [announce("a", "b"), begin("a", sync=False), begin("b"), result("a", 1, final=False)]
    assert play(given, result("b", 1), result("a", 2)).asked == [5, 6]


@pytest.mark.rule("R3.6")
def test_a_group_id_used_again_after_its_calls_settled_is_waited_for_again():
    given = [begin("a", group_id="g"), result("a", 1), begin("b", group_id="g"), begin("c", group_id="g")]
    assert play(given, result("b", 1), result("c", 1)).asked == [2, 6]


@pytest.mark.rule("R3.6", "R3.7")
def test_a_group_id_used_again_after_its_calls_settled_knows_none_of_their_results():
    before = [begin("a", group_id="g"), begin("b", group_id="g"), result("a", 1), result("b", 1)]
    assert play(before, begin("c", group_id="g"), result("c", None)).asked == [4]


@pytest.mark.rule("R3.6")
@pytest.mark.parametrize("replaced", [update(), context()])
def test_a_group_outlives_a_replaced_history(replaced):
    given = [announce("a", "b"), begin("a", sync=False), begin("b", sync=False), replaced]
    assert play(given, result("a", 1), result("b", 1)).asked == [6]


# Whether a result asks.

TWO = [announce("a", "b"), begin("a"), begin("b")]


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize(
    ("run_llm", "says", "asks"),
    [
        (None, None, True),
        (True, None, True),
        (False, None, False),
        (None, True, True),
        (None, False, False),
        (True, False, False),
        (False, True, True),
    ],
)
@pytest.mark.parametrize("sync", [True, False])
def test_the_word_of_the_properties_outranks_that_of_the_frame(run_llm, says, asks, sync):
    played = play(begin("a", sync=sync), result("a", 1, run_llm=run_llm, says=says))
    assert played.asked == ([2] if asks else [])


@pytest.mark.rule("R3.7")
def test_properties_without_a_word_leave_it_to_the_frame():
    assert play(begin("a"), result("a", 1, run_llm=False, final=True)).asked == []
    assert play(begin("a"), result("a", None, run_llm=True, final=True)).asked == [2]


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("word", [{"run_llm": True}, {"says": True}])
@pytest.mark.parametrize("value", [1, None])
def test_an_explicit_yes_never_waits_for_the_group(word, value):
    assert play(TWO, result("a", value, **word)).asked == [4]
    assert play(TWO, result("a", value, **word), result("b", 1)).asked == [4, 5]


@pytest.mark.rule("R3.7")
def test_an_explicit_no_counts_also_for_those_that_waited_for_it():
    assert play(TWO, result("a", 1), result("b", 1, run_llm=False)).asked == []


@pytest.mark.rule("R3.7")
def test_the_last_one_asks_after_an_explicit_no():
    assert play(TWO, result("a", 1, run_llm=False), result("b", 1)).asked == [5]


@pytest.mark.rule("R3.7")
def test_an_explicit_word_of_an_intermediate_result_is_honoured_at_once():
    given = [announce("a", "b"), begin("a", sync=False)]
    assert play(given, result("a", 1, final=False, says=True)).asked == [3]
    assert play(begin("a", sync=False), result("a", 1, final=False, says=False)).asked == []


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize(
    ("values", "asked"),
    [((1, None), [5]), ((None, 1), [5]), ((None, None), []), ((0, None), [5])],
)
def test_a_group_asks_if_any_of_its_calls_had_a_result(values, asked):
    first, second = values
    assert play(TWO, result("a", first), result("b", second)).asked == asked


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("run_llm", [True, False])
def test_an_absent_last_result_asks_after_a_result_that_said_for_itself_whether_to_run(run_llm):
    calls = [begin(c, group_id="g") for c in "ab"]
    played = play(calls, result("a", 1, run_llm=run_llm), result("b", None))
    assert played.asked == ([3, 4] if run_llm else [4])
    assert play(calls, result("a", None, run_llm=False), result("b", None)).asked == []


@pytest.mark.rule("R3.7")
def test_an_absent_result_of_one_group_is_not_helped_by_another_group():
    assert play(begin("a"), result("a", 1), begin("b"), result("b", None)).asked == [2]


@pytest.mark.rule("R3.7")
def test_an_absent_final_result_asks_for_news_that_waited():
    given = [announce("a", "b"), begin("a", sync=False), begin("b"), result("a", 1, final=False)]
    assert play(given, cancel("b"), result("a", None)).asked == [6]


# Cancels.


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("sync", [True, False])
def test_a_deadline_asks_like_a_result_and_a_plain_cancel_does_not(sync):
    assert play(begin("a", sync=sync), cancel("a", run_llm=True)).asked == [2]
    assert play(begin("a", sync=sync), cancel("a")).asked == []


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("last", [result("b", 1), result("b", None), cancel("b", run_llm=True)])
def test_a_deadline_waits_for_its_group(last):
    assert play(TWO, cancel("a", run_llm=True), last).asked == [5]


@pytest.mark.rule("R3.7")
def test_a_deadline_that_is_last_asks_for_the_group():
    assert play(TWO, result("a", 1), cancel("b", run_llm=True)).asked == [5]


@pytest.mark.rule("R3.7")
def test_a_deadline_counts_as_a_result_also_after_a_run_was_requested():
    calls = [begin(c, group_id="g") for c in "abc"]
    played = play(calls, cancel("a", run_llm=True), result("b", None, run_llm=True))
    assert played.asked == [5]
    assert play(result("c", None), onto=played).asked == [5, 6]


@pytest.mark.rule("R3.7")
def test_a_deadline_that_the_worker_of_the_call_says_asks_like_any_other():
    """Only of a call that an interruption is to cancel does it ask for nothing itself."""
    assert play(begin("a", attempt=None), cancel("a", run_llm=True, attempt=1)).asked == [2]


@pytest.mark.rule("R3.7")
def test_a_plain_cancel_lets_the_group_go_on():
    assert play(TWO, cancel("a"), result("b", 1)).asked == [5]
    assert play(TWO, cancel("a"), result("b", None)).asked == []


@pytest.mark.rule("R3.7")
def test_a_plain_cancel_asks_for_nothing_even_when_it_is_last():
    assert play(TWO, result("a", 1), cancel("b")).asked == []


@pytest.mark.rule("R3.7")
def test_an_absent_result_asks_for_an_earlier_one_behind_a_plain_cancel():
    given = [announce("a", "b", "c"), [begin(c) for c in "abc"]]
    assert play(given, result("a", 1), cancel("b"), result("c", None)).asked == [7]


@pytest.mark.rule("R3.4")
def test_a_deadline_of_a_call_that_never_started_asks_only_for_an_earlier_result():
    assert play(announce("a", "b"), begin("a"), result("a", 1), cancel("b", run_llm=True)).asked == [4]
    assert play(announce("a", "b"), begin("a"), result("a", 1), cancel("b")).asked == []
    assert play(announce("a", "b"), begin("a"), result("a", None), cancel("b", run_llm=True)).asked == []
    assert play(announce("a", "b"), cancel("a", run_llm=True), cancel("b", run_llm=True)).asked == []


@pytest.mark.rule("R3.4")
def test_a_deadline_of_a_call_that_never_started_waits_for_the_others():
    given = [announce("a", "b", "c"), begin("a"), result("a", 1), cancel("b", run_llm=True)]
    assert play(given).asked == []
    assert play(given, cancel("c", run_llm=True)).asked == [5]
    assert play(given, begin("c"), result("c", None)).asked == [6]


@pytest.mark.rule("R3.4", "R3.7")
def test_a_deadline_of_a_call_that_never_started_asks_for_a_result_that_wanted_no_run_by_itself():
    given = [announce("a", "b", "c"), begin("a"), result("a", 1, run_llm=False), cancel("b", run_llm=True)]
    assert play(given).asked == []
    assert play(given, cancel("c", run_llm=True)).asked == [5]


@pytest.mark.rule("R3.4", "R3.6")
def test_a_deadline_of_a_call_that_never_started_asks_for_no_result_that_still_waits_for_another():
    given = [announce("a", "b", "c"), begin("a", sync=False), begin("c", sync=False), result("a", 1)]
    played = play(given, cancel("b", run_llm=True))
    assert played.asked == []
    assert play(result("c", None), onto=played).asked == [6]


@pytest.mark.rule("R3.4")
def test_a_deadline_of_a_call_that_never_started_leaves_its_siblings_to_ask_for_themselves():
    assert play(announce("a", "b"), begin("a"), cancel("b", run_llm=True), result("a", 1)).asked == [4]


# The last call that a result waits for turns out to be asynchronous.


@pytest.mark.rule("R3.7")
def test_a_result_asks_when_the_last_call_it_waits_for_turns_out_to_be_asynchronous():
    waits = [announce("a", "b"), begin("a"), result("a", 1)]
    assert play(waits, begin("b", sync=False)).asked == [4]
    assert play(waits, begin("b", sync=False), result("b", 1)).asked == [4, 5]
    assert play(waits, begin("b", sync=True)).asked == []


@pytest.mark.rule("R3.7", "R2.1")
def test_a_result_asks_when_the_last_call_it_waits_for_is_forgotten_with_its_run():
    given = [start(), announce("a", "b"), begin("a", sync=False)]
    assert play(given, result("a", 1), start()).asked == [5]
    between = play(given, result("a", 1, final=False), start())
    assert between.asked == []
    assert play(result("a", None), onto=between).asked == [6]


@pytest.mark.rule("R3.7")
def test_an_intermediate_result_counts_until_a_run_was_requested_for_its_group():
    given = [announce("a", "b"), begin("a", sync=False), begin("b", sync=False), result("a", 1, final=False)]
    assert play(given, result("a", None), result("b", None)).asked == [6]
    assert play(given, result("a", None, run_llm=True), result("b", None)).asked == [5]


@pytest.mark.rule("R3.7")
def test_only_the_last_call_that_a_result_waits_for_releases_it():
    waits = play(announce("a", "b", "c"), begin("a"), result("a", 1), begin("b", sync=False))
    assert waits.asked == []
    assert play(begin("c", sync=False), onto=waits).asked == [5]
    assert play(begin("c"), result("c", 1), onto=waits).asked == [6]


@pytest.mark.rule("R3.7")
def test_a_result_that_waited_asks_for_nothing_once_a_run_was_requested_for_its_group():
    waits = [announce("a", "b", "c"), begin("a"), result("a", 1), begin("b"), result("b", 1, run_llm=True)]
    assert play(waits).asked == [5]
    assert play(waits, begin("c", sync=False)).asked == [5]
    assert play(waits, begin("c", sync=False), result("c", 1)).asked == [5, 7]


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("settled", [result("a", None), result("a", 1, run_llm=False), cancel("a")])
def test_a_call_that_turns_out_to_be_asynchronous_asks_for_nobody_who_wants_no_run(settled):
    assert play(announce("a", "b"), begin("a"), settled, begin("b", sync=False)).asked == []


@pytest.mark.rule("R3.7")
def test_an_asynchronous_result_is_not_released_by_another_asynchronous_start():
    waits = play(announce("a", "b"), begin("a", sync=False), result("a", 1), begin("b", sync=False))
    assert waits.asked == []
    assert play(result("b", None), onto=waits).asked == [5]


@pytest.mark.rule("R3.7")
def test_a_deadline_waits_like_a_result_until_the_last_call_turns_out_to_be_asynchronous():
    assert play(announce("a", "b"), begin("a"), cancel("a", run_llm=True), begin("b", sync=False)).asked == [
        4
    ]


# The place of the last call was replaced.

REPLACED = {
    "of an update": [announce("a", "b"), begin("a"), begin("b", sync=False), update("s"), result("b", 1)],
    "of a rewriting": [announce("a", "b"), begin("a"), begin("b"), result("b", 1), rewrite(2, None)],
    "of an earlier era": [
        [begin("a", group_id="g"), update("s"), begin("b", group_id="g")],
        [begin("c"), result("b", 1)],
    ],
}


@pytest.mark.rule("R3.5", "R3.7")
@pytest.mark.regression("fault 89")
@pytest.mark.parametrize("waits", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("last", [result("a", 1), result("a", None), cancel("a", run_llm=True)])
def test_a_result_asks_when_the_call_that_it_waited_for_has_no_place_any_more(waits, last):
    waiting = play(waits)
    assert waiting.asked == []
    played = play(last, onto=waiting)
    assert (played.became, played.asked) == ("place_replaced", [len(played.steps)])


@pytest.mark.rule("R3.5", "R3.7")
@pytest.mark.parametrize("waits", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("last", [result("a", 1, run_llm=False), result("a", 1, says=False), cancel("a")])
def test_a_call_without_a_place_that_wants_no_run_releases_nobody(waits, last):
    played = play(waits, last)
    assert (played.became, played.asked) == ("place_replaced", [])


@pytest.mark.rule("R3.5", "R3.7")
@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("last", [result("a", 1), cancel("a", run_llm=True)])
def test_a_result_that_was_replaced_too_is_not_answered_any_more(sync, last):
    """The update says what the history is now, and whether it is to be answered."""
    waits = [announce("a", "b"), begin("a"), begin("b", sync=sync), result("b", 1)]
    played = play(waits, update("s"), last)
    assert (played.became, played.asked) == ("place_replaced", [])


@pytest.mark.rule("R3.5", "R3.7")
def test_a_result_still_waits_for_others_than_the_call_without_a_place():
    waits = play(announce("a", "b", "c"), begin("a"), begin("b", sync=False), begin("c"), update("s"))
    waiting = play(result("b", 1), result("a", 1), onto=waits)
    assert (waiting.became, waiting.asked) == ("place_replaced", [])
    assert play(result("c", 1), onto=waiting).asked == [8]


# Nothing counts after an end.


@pytest.mark.rule("R3.7")
@pytest.mark.parametrize("said", [result("a", 1), result("a", 1, run_llm=True), cancel("a", run_llm=True)])
def test_a_call_that_starts_after_the_end_is_written_and_asks_for_nothing(said):
    played = play(finish(), begin("a"), said)
    assert played.outcomes == ["applied"] * 3
    assert played.texts[-1].startswith("tool a: ")
    assert played.asked == []
    assert play(speak(), begin("b"), result("b", 1), onto=played).state.runs.owed_to_turn

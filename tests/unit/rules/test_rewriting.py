"""One message replaced or removed by a client, in its place (RA5.rewrite)."""

from itertools import groupby, permutations

import pytest
from tests.unit.rules.dsl import (
    answer,
    append,
    ask,
    begin,
    cancel,
    committed,
    context,
    end,
    finish,
    interrupt,
    play,
    push,
    result,
    rewrite,
    start,
    tokens,
    update,
)

from frameledger import stored
from frameledger.evolve import gaps
from frameledger.evolve.changes import MessageEnded, MessageReplaced
from frameledger.evolve.gaps import GAPS_REMEMBERED
from frameledger.evolve.state import MessageCursor

THREE = [append("a", "b", "c")]


@pytest.mark.rule("RA5.rewrite")
def test_a_message_is_replaced_in_its_place():
    played = play(THREE, rewrite(2, "B"))
    assert (played.texts, played.positions) == (["user: a", "user: B", "user: c"], [1, 2, 3])
    assert played.changes == (MessageReplaced(2, {"role": "user", "content": "B"}),)
    assert (played.asked, played.state.place.next_position, played.state.place.gaps) == ([], 4, ())


@pytest.mark.rule("RA5.rewrite", "RA5.positions")
def test_a_message_is_removed_and_no_other_moves():
    played = play(THREE, rewrite(2, None), append("d"))
    assert (played.texts, played.positions) == (["user: a", "user: c", "user: d"], [1, 3, 4])
    assert played.steps[1].changes == (MessageEnded(2),)


@pytest.mark.rule("RA5.rewrite")
@pytest.mark.parametrize("words", ["x", None])
@pytest.mark.parametrize("position", [2, 4, 5, 2**62])
def test_where_nothing_is_nothing_is_rewritten(position, words):
    """The second of two who take the same message back is told so."""
    played = play(THREE, rewrite(2, None), rewrite(position, words))
    assert (played.became, played.changes) == ("no_such_position", ())
    assert played.texts == ["user: a", "user: c"]


@pytest.mark.rule("RA5.rewrite")
def test_positions_are_those_of_the_present_history():
    assert play(THREE, update("x"), rewrite(2, "y")).became == "no_such_position"
    assert play(THREE, rewrite(1, None), update("x"), rewrite(1, "y")).texts == ["user: y"]
    assert play(THREE, context(), rewrite(1, "y")).became == "no_such_position"


@pytest.mark.rule("RA5.rewrite")
def test_what_the_fold_took_back_is_empty_too():
    played = play(append("hi"), ask(), start(2), tokens("it", run=2), push(2), start(2, attempt=2))
    assert play(rewrite(2, "x"), onto=played).became == "no_such_position"
    played = play(answer("it is fine"), interrupt(heard_text=""), rewrite(1, "x"))
    assert played.became == "no_such_position"


@pytest.mark.rule("RA5.rewrite", "R1.6")
def test_a_rewriting_opens_no_ended_context():
    played = play(THREE, finish(), rewrite(2, "redacted"))
    assert (played.texts[1], played.state.terms.ended) == ("user: redacted", True)


@pytest.mark.rule("RA5.rewrite", "R3.5")
@pytest.mark.parametrize("words", ["x", None])
@pytest.mark.parametrize("closing", [result("a", 1), cancel("a", run_llm=True)])
def test_the_result_of_a_call_is_not_written_over_what_a_client_put_there(words, closing):
    played = play(begin("a"), rewrite(2, words), closing)
    assert (played.became, played.asked) == ("place_replaced", [])
    assert played.texts == ["assistant calls a(a)", "user: x"][: 2 if words else 1]
    assert played.state.calls.open == {}


@pytest.mark.rule("RA5.rewrite", "R3.5")
def test_a_position_of_an_era_before_is_that_of_no_call():
    played = play(begin("a"), update("x", "y"), rewrite(2, "z"), begin("b"), result("b", 1))
    assert played.texts == ["user: x", "user: z", "assistant calls b(b)", "tool b: 1"]


@pytest.mark.rule("RA5.rewrite", "R1.6")
def test_an_end_writes_nothing_where_a_client_removed_the_message_of_a_running_call():
    assert play(begin("a"), rewrite(2, None), finish()).texts == ["assistant calls a(a)"]


@pytest.mark.rule("RA5.rewrite", "R6.7")
@pytest.mark.parametrize(("words", "left"), [("mine", ["user: mine"]), (None, [])])
def test_what_was_heard_does_not_correct_what_a_client_rewrote(words, left):
    assert play(answer("it is fine"), rewrite(1, words), interrupt(heard_text="it")).texts == left


@pytest.mark.rule("RA5.rewrite", "R6.7")
def test_what_was_heard_corrects_a_text_also_after_another_message_was_rewritten():
    played = play(append("a"), answer("it is fine"), rewrite(1, "b"), interrupt(heard_text="it"))
    assert played.texts == ["user: b", "assistant: it"]


@pytest.mark.rule("RA5.rewrite", "R6.7")
def test_what_is_still_being_said_is_kept_as_it_was_said_then():
    played = play(
        start(), tokens("one"), push(), tokens("two"), rewrite(1, "mine"), interrupt(heard_text="on")
    )
    assert played.texts == ["user: mine", "assistant: two"]


@pytest.mark.rule("RA5.rewrite", "RA5.attempts")
@pytest.mark.parametrize("words", ["mine", None])
def test_the_next_attempt_takes_nothing_back_that_a_client_rewrote(words):
    said = [start(1), tokens("one", run=1), push(1), tokens("two", run=1), push(1)]
    played = play(ask(), said, rewrite(1, words), start(1, attempt=2), answer("three", run=1, attempt=3))
    assert played.texts == [*(["user: mine"] if words else []), "assistant: three"]


@pytest.mark.rule("RA5.rewrite")
def test_rewriting_leaves_a_run_and_its_calls_alone():
    played = play(append("hi"), ask(), committed("a", run=2), rewrite(1, "ho"), begin("a", attempt=1))
    played = play(result("a", 1, attempt=1), onto=played)
    assert played.texts == ["user: ho", "assistant calls a(a)", "tool a: 1"]
    assert played.asked == [2, 8]


@pytest.mark.rule("RA5.rewrite")
def test_empty_positions_side_by_side_are_one_gap():
    played = play(append(*"abcdefgh"), [rewrite(position, None) for position in (3, 5, 4, 7)])
    assert played.state.place.gaps == ((3, 5), (7, 7))
    assert [play(rewrite(n, "x"), onto=played).became for n in range(1, 10)] == [
        *["applied"] * 2,
        *["no_such_position"] * 3,
        "applied",
        "no_such_position",
        "applied",
        "no_such_position",
    ]
    assert play(rewrite(6, None), onto=played).state.place.gaps == ((3, 7),)


def ranges(positions):
    """The same positions as ranges of those that lie side by side."""
    side_by_side = groupby(enumerate(sorted(positions)), key=lambda pair: pair[1] - pair[0])
    lists = [[position for _, position in group] for _, group in side_by_side]
    return tuple((one[0], one[-1]) for one in lists)


@pytest.mark.rule("RA5.rewrite")
@pytest.mark.parametrize("emptied", list(permutations(range(1, 6))))
def test_gaps_are_the_same_in_whatever_order_positions_are_emptied(emptied):
    place = MessageCursor(next_position=7)
    for count, position in enumerate(emptied, start=1):
        place = gaps.emptied(place, position)
        empty = emptied[:count]
        assert (place.gaps, place.fixed) == (ranges(empty), None)
        assert [gaps.refusal(place, one) for one in range(1, 9)] == [
            "no_such_position" if one in empty or one > 6 else None for one in range(1, 9)
        ]


@pytest.mark.rule("RA5.rewrite")
@pytest.mark.parametrize(
    ("emptied", "remembered", "fixed"),
    [
        ((4, 6, 8), ((6, 6), (8, 8)), (4, 4)),
        ((4, 5, 7, 9), ((7, 7), (9, 9)), (4, 5)),
        ((4, 6, 8, 10), ((8, 8), (10, 10)), (4, 6)),
        ((2, 4, 5, 8, 10), ((8, 8), (10, 10)), (2, 5)),
        ((4, 6, 8, 2), ((6, 6), (8, 8)), (2, 4)),
        ((4, 6, 8, 7, 2), ((2, 2), (6, 8)), (4, 4)),
        ((4, 6, 8, 7, 2, 1, 10), ((6, 8), (10, 10)), (1, 4)),
        ((2, 4, 6, 8, 7, 3), ((6, 8),), (2, 4)),
        ((2, 4, 6, 8, 7, 5), ((5, 8),), (2, 4)),
    ],
)
def test_beyond_the_gaps_that_are_remembered_all_between_the_others_is_fixed(
    emptied, remembered, fixed, monkeypatch
):
    monkeypatch.setattr(gaps, "GAPS_REMEMBERED", 2)
    place = MessageCursor(next_position=12)
    for position in emptied:
        place = gaps.emptied(place, position)
    assert (place.gaps, place.fixed) == (remembered, fixed)


@pytest.mark.rule("RA5.rewrite")
def test_beyond_so_many_gaps_the_lowest_is_forgotten_and_its_part_of_the_history_is_fixed():
    """So that a state is as small after years as after an hour, and never says a message is there that is not."""
    assert GAPS_REMEMBERED == 256
    everything = append(*[str(n) for n in range(1, 2 * GAPS_REMEMBERED + 20)])
    odd = [rewrite(2 * n + 3, None) for n in range(GAPS_REMEMBERED)]
    played = play(everything, odd)
    assert (len(played.state.place.gaps), played.state.place.fixed) == (GAPS_REMEMBERED, None)
    played = play(rewrite(2 * GAPS_REMEMBERED + 5, None), onto=played)
    assert (len(played.state.place.gaps), played.state.place.fixed) == (GAPS_REMEMBERED, (3, 3))
    assert play(rewrite(3, "x"), onto=played).became == "position_fixed"
    assert play(rewrite(4, "x"), onto=played).became == "applied"
    assert play(rewrite(4, "x"), append("x"), onto=played).state.place.fixed == (3, 3)
    played = play(rewrite(2 * GAPS_REMEMBERED + 7, None), onto=played)
    assert played.state.place.fixed == (3, 5)
    became = [play(rewrite(position, None), onto=played).became for position in (2, 3, 4, 5, 6, 7)]
    assert became == ["applied", *["position_fixed"] * 3, "applied", "no_such_position"]
    assert len(stored.dump(played.state)) < 4_096
    # What the fold itself takes back it knows to be there.
    assert play(update("anew"), rewrite(1, "x"), onto=played).became == "applied"


@pytest.mark.rule("RA5.rewrite")
def test_what_the_fold_takes_back_in_a_fixed_part_leaves_it_as_it_is():
    said = [ask(), start(1), tokens("one", run=1), push(1), tokens("two", run=1), push(1)]
    before = [append(*[str(n) for n in range(2 * GAPS_REMEMBERED + 8)])]
    gaps = [rewrite(2 * n + 1, None) for n in range(GAPS_REMEMBERED + 3)]
    played = play(said, before, rewrite(1, None), gaps[1:], start(1, attempt=2), end(1, attempt=2))
    assert played.state.place.fixed is not None
    assert [position for position in played.positions if position <= 2] == []

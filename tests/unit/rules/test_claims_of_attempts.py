"""Two claims of one attempt: a database that lost its latest commits gave it out twice (RA5.claim).

Whoever was given it twice, nothing that reaches the context is put together from both, and a function that is not
safe to retry belongs to whoever's start lies on the log first.
"""

import pytest
from tests.unit.rules.dsl import (
    announce,
    append,
    ask,
    begin,
    cancel,
    committed,
    effects_of,
    end,
    fail,
    play,
    push,
    result,
    start,
    think,
    thinking,
    thought,
    tokens,
)

from frameledger.evolve.changes import CallStarted, RunStarted
from frameledger.frames import Frame
from frameledger.frames.calls import Waiting


def under(claim: str, *frames) -> list[Frame]:
    """The same frames, from the worker that has this claim."""
    flat = [one for frame in frames for one in (frame if isinstance(frame, list) else [frame])]
    return [one.model_copy(update={"claim": claim}) for one in flat]


# Runs.


@pytest.mark.rule("RA5.claim", "RA5.attempts")
@pytest.mark.regression("trial C2")
def test_a_start_of_the_same_attempt_under_another_claim_says_it_all_anew():
    first = under("a", start(2), tokens("one two", run=2), announce("x", run=2))
    second = under("b", start(2), tokens("eins", run=2), announce("y", run=2), end(2))
    played = play(append("hi"), ask(), first, second)
    assert played.texts == ["user: hi", "assistant: eins"]
    assert effects_of(played) == ["call y"]


@pytest.mark.rule("RA5.claim", "RA5.fence", "RA5.commit")
@pytest.mark.regression("trial C2")
@pytest.mark.parametrize(
    "late",
    [
        *tokens("x", run=1),
        think(1),
        *thinking("x", run=1),
        thought("sig", 1),
        push(1),
        announce("x", run=1),
        end(1),
        fail(1, 1),
    ],
    ids=lambda frame: frame.type,
)
def test_what_comes_under_another_claim_than_the_latest_start_is_superseded(late):
    one, other = under("a", start(1), tokens("one", run=1)), under("b", start(1), tokens("eins", run=1))
    before = play(ask(), one, other)
    played = play(under("a", late), onto=before)
    assert played.became == "attempt_superseded"
    assert play(under("b", end(1)), onto=played).texts == ["assistant: eins"]
    unbegun = play(ask(), start(1), under("a", late))
    assert unbegun.became == "attempt_superseded"


@pytest.mark.rule("RA5.claim")
def test_the_run_says_under_which_claim_it_was_started_last():
    played = play(ask(), under("a", start(1)), under("b", start(1)))
    assert [change for change in played.changes if isinstance(change, RunStarted)] == [
        RunStarted(played.state.runs.open.run_id, 1, "b")
    ]


@pytest.mark.rule("RA5.claim", "RA5.attempts")
@pytest.mark.parametrize("claims", [("a", "a"), ("a", None), (None, "a"), (None, None)])
def test_a_start_of_the_same_attempt_that_does_not_name_another_claim_is_superseded(claims):
    starts = [start(1).model_copy(update={"claim": claim}) for claim in claims]
    assert play(ask(), starts).became == "attempt_superseded"


@pytest.mark.rule("RA5.claim")
def test_an_earlier_attempt_is_superseded_under_whatever_claim():
    played = play(ask(), under("a", start(1, 2)), under("b", start(1, 1)))
    assert played.became == "attempt_superseded"


@pytest.mark.rule("RA5.claim", "RA5.fence")
def test_what_names_no_claim_is_judged_by_its_attempt_alone():
    played = play(ask(), under("a", start(1)), tokens("one", run=1), end(1))
    assert played.texts == ["assistant: one"]
    ended = play(ask(), under("a", start(1)), fail(1, 1))
    assert ended.became == "applied"


@pytest.mark.rule("RA5.claim", "R4.4")
@pytest.mark.parametrize(("claim", "attempt"), [("a", 1), ("b", 2)])
def test_a_fatal_error_counts_under_the_claim_of_the_latest_start_and_from_a_later_attempt(claim, attempt):
    played = play(ask(), under("a", start(1)), under(claim, fail(1, attempt)))
    assert (played.became, played.state.runs.open) == ("applied", None)


# Calls.

CALL = [ask(), committed("a", run=1)]


@pytest.mark.rule("RA5.claim", "RA5.start")
@pytest.mark.regression("trial C1")
def test_of_an_unsafe_call_the_first_start_stays_whoever_is_given_the_attempt_again():
    played = play(CALL, under("a", begin("a", attempt=1)), under("b", begin("a", attempt=1)))
    assert played.became == "call_started"
    assert played.state.calls.open["a"].running.claim == "a"


@pytest.mark.rule("RA5.claim", "RA5.start")
def test_a_call_that_is_safe_to_retry_is_taken_over_by_another_claim_of_the_attempt():
    begun = begin("a", attempt=1, safe_to_retry=True)
    played = play(CALL, under("a", begun), under("b", begun))
    assert [(one.claim, one.again) for one in played.changes if isinstance(one, CallStarted)] == [("b", True)]
    assert play(under("a", result("a", 1, attempt=1)), onto=played).became == "attempt_superseded"
    assert play(under("b", result("a", 2, attempt=1)), onto=played).became == "applied"


@pytest.mark.rule("RA5.claim")
@pytest.mark.parametrize(
    "claims", [("a", "a"), ("a", None), (None, "a")], ids=["the same", "none after one", "one after none"]
)
def test_a_safe_start_of_the_same_attempt_that_does_not_name_another_claim_changes_nothing(claims):
    begun = begin("a", attempt=1, safe_to_retry=True)
    starts = [begun.model_copy(update={"claim": claim}) for claim in claims]
    assert play(CALL, starts).became == "call_started"


@pytest.mark.rule("RA5.claim")
@pytest.mark.regression("trial C1")
@pytest.mark.parametrize(
    "late",
    [
        result("a", "not run", attempt=1, settled_as="failed"),
        result("a", "part", attempt=1, final=False),
        cancel("a", attempt=1),
    ],
    ids=["result", "result in between", "cancel"],
)
@pytest.mark.parametrize("attempt", [1, 2])
def test_who_did_not_start_the_call_does_not_end_it_as_if_it_had(late, attempt):
    late = late.model_copy(update={"call_attempt": attempt})
    played = play(CALL, under("a", begin("a", attempt=1, sync=False)), under("b", late))
    assert played.became == "attempt_superseded"
    assert play(under("a", result("a", 1, attempt=1)), onto=played).became == "applied"


@pytest.mark.rule("RA5.claim", "RA5.start")
def test_who_did_not_start_the_call_cannot_say_that_it_waits():
    waits = begin("a", attempt=1, worker="w", waiting=Waiting(for_="approval"))
    played = play(CALL, under("a", begin("a", attempt=1, worker="w")), under("b", waits))
    assert played.became == "call_started"
    assert play(under("a", waits), onto=played).became == "applied"
    assert play(waits, onto=played).became == "applied"
    unclaimed = play(CALL, begin("a", attempt=1, worker="w"), under("b", waits))
    assert unclaimed.became == "call_started"


@pytest.mark.rule("RA5.claim")
@pytest.mark.parametrize(
    "settling",
    [
        result("a", "nobody knows", attempt=1, settled_as="ambiguous"),
        result("a", "nobody knows", attempt=2, settled_as="ambiguous"),
    ],
    ids=["the same attempt", "a later attempt"],
)
def test_whoever_takes_the_call_over_may_settle_it_and_names_no_claim(settling):
    played = play(CALL, under("a", begin("a", attempt=1)), settling)
    assert played.became == "applied"

"""Sequential calls: one queue per context for calls that must not run in parallel (RA5.sequential)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    ask,
    begin,
    cancel,
    committed,
    effects_of,
    end,
    finish,
    interrupt,
    play,
    result,
    start,
)

WAITS = {"for": "a person"}
BATCH = [ask(), committed("a", "b", "c", run=1, run_in_parallel=False)]
RUNS = [*BATCH, begin("a", attempt=1)]


def called(played):
    """Every call that was handed out, in order."""
    return [e.tool_call_id for effects in played.effects for e in effects if e.effect == "call_function"]


@pytest.mark.rule("RA5.sequential")
def test_the_end_dispatches_the_first_call_of_a_sequential_batch_only():
    assert effects_of(play(BATCH)) == ["call a"]


@pytest.mark.rule("RA5.sequential")
@pytest.mark.parametrize(
    "settled", [result("a", 1, attempt=1), result("a", None), cancel("a"), cancel("a", run_llm=True)]
)
def test_the_next_call_is_dispatched_when_the_one_before_has_settled(settled):
    assert called(play(RUNS)) == ["a"]
    assert called(play(RUNS, settled)) == ["a", "b"]


@pytest.mark.rule("RA5.sequential")
def test_a_call_that_is_cancelled_before_it_starts_makes_room():
    assert called(play(BATCH, cancel("a"))) == ["a", "b"]


@pytest.mark.rule("RA5.sequential")
def test_a_queued_call_that_is_cancelled_loses_its_place_and_nobody_is_dispatched_for_it():
    cancelled = play(RUNS, cancel("b"))
    assert called(cancelled) == ["a"]
    assert called(play(result("a", 1), onto=cancelled)) == ["a", "c"]


@pytest.mark.rule("RA5.sequential")
def test_a_call_that_waits_for_a_person_lets_the_next_one_go():
    assert effects_of(play(RUNS, begin("a", attempt=1, waiting=WAITS))) == ["call b"]
    assert effects_of(play(BATCH, begin("a", attempt=1, waiting=WAITS))) == ["call b"]


@pytest.mark.rule("RA5.sequential")
@pytest.mark.parametrize("settled", [result("a", 1, attempt=1), cancel("a")])
def test_a_call_that_waited_makes_no_room_a_second_time(settled):
    waits = [*RUNS, begin("a", attempt=1, waiting=WAITS), begin("b", attempt=1)]
    assert called(play(waits, settled)) == ["a", "b"]
    assert called(play(waits, begin("a", attempt=1, waiting=WAITS))) == ["a", "b"]
    assert called(play(waits, settled, result("b", 1))) == ["a", "b", "c"]


@pytest.mark.rule("RA5.sequential")
def test_an_intermediate_result_makes_no_room():
    assert called(play(BATCH, begin("a", attempt=1, sync=False), result("a", 1, final=False))) == ["a"]


@pytest.mark.rule("RA5.sequential")
def test_an_asynchronous_call_holds_the_queue_until_it_settles():
    played = play(BATCH, begin("a", attempt=1, sync=False))
    assert called(played) == ["a"]
    assert called(play(result("a", 1), onto=played)) == ["a", "b"]


@pytest.mark.rule("RA5.sequential")
def test_the_queue_holds_across_batches():
    played = play(
        ask(),
        committed("a", run=1, run_in_parallel=False),
        begin("a", attempt=1),
        ask(),
        committed("b", "c", run=6, run_in_parallel=False),
    )
    assert called(played) == ["a"]
    settled = play(result("a", 1), onto=played)
    assert called(settled) == ["a", "b"]
    assert called(play(begin("b", attempt=1), cancel("b"), onto=settled)) == ["a", "b", "c"]


@pytest.mark.rule("RA5.sequential")
def test_parallel_calls_neither_wait_for_the_queue_nor_hold_it():
    first = play(ask(), committed("a", run=1, run_in_parallel=False), begin("a", attempt=1), ask())
    assert called(play(committed("p", "q", run=6), onto=first)) == ["a", "p", "q"]
    parallel = play(ask(), committed("p", run=1), begin("p", attempt=1), ask())
    assert called(play(committed("a", "b", run=6, run_in_parallel=False), onto=parallel)) == ["p", "a"]


@pytest.mark.rule("RA5.sequential")
def test_a_call_that_nobody_announced_neither_waits_for_the_queue_nor_holds_it():
    played = play(begin("x"), ask(), committed("a", "b", run=2, run_in_parallel=False), begin("y"))
    assert called(played) == ["a"]
    assert called(play(cancel("a"), onto=played)) == ["a", "b"]


@pytest.mark.rule("RA5.sequential", "RA5.start")
@pytest.mark.parametrize("attempt", [1, None])
def test_nobody_starts_a_call_out_of_turn(attempt):
    played = play(BATCH, begin("b", attempt=attempt))
    assert played.outcomes[-1] == "ignored"
    assert played.texts == []


@pytest.mark.rule("RA5.sequential", "R3.6")
def test_a_sequential_batch_asks_once_when_its_last_call_settles():
    played = play(
        ask(),
        committed("a", "b", run=1, run_in_parallel=False),
        [begin("a", attempt=1), result("a", 1, attempt=1)],
        [begin("b", attempt=1), result("b", 1, attempt=1)],
    )
    assert played.asked == [1, 8]


@pytest.mark.rule("RA5.sequential", "R4.3")
def test_no_run_starts_while_a_call_stands_in_the_queue():
    played = play(
        ask(),
        committed("a", "b", run=1, run_in_parallel=False),
        begin("a", attempt=1),
        result("a", 1, run_llm=True),
    )
    assert (played.asked, played.opened) == ([1, 6], [1])
    assert play(begin("b", attempt=1), onto=played).opened == [1, 7]
    assert play(cancel("b"), onto=played).opened == [1, 7]


@pytest.mark.rule("RA5.sequential", "R5.7")
def test_an_interruption_drops_what_has_not_started():
    interrupted = play(RUNS, interrupt())
    assert effects_of(interrupted) == ["stop a"]
    settled = play(cancel("a", attempt=1), onto=interrupted)
    assert called(settled) == ["a"]
    assert play(begin("b", attempt=1), onto=settled).became == "call_forgotten"


@pytest.mark.rule("RA5.sequential", "R5.7")
def test_an_interrupted_call_holds_the_queue_until_its_worker_has_stopped():
    given = [RUNS, interrupt(), ask(), committed("d", run=7, run_in_parallel=False)]
    assert called(play(given)) == ["a"]
    assert called(play(given, cancel("a", attempt=1))) == ["a", "d"]


@pytest.mark.rule("RA5.sequential", "R1.6")
def test_the_end_of_the_context_hands_out_nothing_more():
    assert called(play(RUNS, finish())) == ["a"]


@pytest.mark.rule("RA5.sequential", "RA5.commit")
def test_an_attempt_that_never_ended_has_no_place_in_the_queue():
    played = play(
        ask(),
        [start(1), announce("a", run=1, run_in_parallel=False)],
        [start(1, 2), announce("b", run=1, attempt=2, run_in_parallel=False), end(1, 2)],
    )
    assert called(played) == ["b"]

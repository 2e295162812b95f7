"""From the announcement to the start: which calls the end of a run commits, and who may start a call (RA5)."""

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
    finish,
    interrupt,
    play,
    result,
    start,
    tokens,
)

from frameledger.evolve.changes import CallAnnounced, CallSettled, CallStarted

STARTED = ["assistant calls a(a)", "tool a: IN_PROGRESS"]


def stages(played):
    return {call_id: call.stage for call_id, call in played.state.calls.open.items()}


# The announcement sets aside, the end commits.


@pytest.mark.rule("RA5.commit")
def test_an_announcement_calls_nothing_until_the_run_ends():
    announced = play(ask(), start(1), announce("a", "b", run=1))
    assert effects_of(announced) == []
    assert announced.texts == []
    assert effects_of(play(end(1), onto=announced)) == ["call a", "call b"]


@pytest.mark.rule("RA5.commit")
def test_the_end_writes_the_text_before_any_call_of_the_run():
    response = [start(1), tokens("let me ", run=1), announce("a", run=1), tokens("see", run=1), end(1)]
    played = play(ask(), response, begin("a", attempt=1))
    assert played.texts == ["assistant: let me see", *STARTED]


@pytest.mark.rule("RA5.commit")
@pytest.mark.parametrize("finish_reason", [None, "stop", "tool_calls", "length", "content_filter"])
def test_every_end_but_an_error_dispatches(finish_reason):
    played = play(ask(), start(1), announce("a", run=1), end(1, finish_reason=finish_reason))
    assert effects_of(played) == ["call a"]


@pytest.mark.rule("RA5.commit", "RA5.barred")
@pytest.mark.parametrize("attempt", [None, 1])
def test_an_end_with_an_error_forgets_what_its_run_announced(attempt):
    failed = play(ask(), start(1), tokens("so", run=1), announce("a", run=1), end(1, finish_reason="error"))
    assert failed.texts == ["assistant: so"]
    assert effects_of(failed) == []
    assert play(begin("a", attempt=attempt), onto=failed).became == "call_forgotten"


@pytest.mark.rule("RA5.commit")
def test_the_end_dispatches_the_calls_of_its_own_attempt_only():
    played = play(
        ask(), start(1), announce("a", run=1), start(1, 2), announce("b", run=1, attempt=2), end(1, 2)
    )
    assert effects_of(played) == ["call b"]
    assert play(begin("a", attempt=1), onto=played).became == "call_forgotten"


@pytest.mark.rule("RA5.commit", "RA5.barred")
def test_the_next_attempt_may_announce_the_same_id_again():
    played = play(
        ask(), start(1), announce("a", run=1), start(1, 2), announce("a", run=1, attempt=2), end(1, 2)
    )
    assert effects_of(played) == ["call a"]
    assert play(begin("a", attempt=1), onto=played).texts == STARTED


@pytest.mark.rule("RA5.commit")
@pytest.mark.parametrize(
    ("given", "announcement", "reason"),
    [
        ([ask(), start(1), end(1)], announce("a", run=1), "run_over"),
        ([ask(), start(1), fail(1)], announce("a", run=1), "run_over"),
        ([ask(), start(1), interrupt()], announce("a", run=1), "run_over"),
        ([ask(), start(1)], announce("a", run="another"), "run_over"),
        ([ask(), start(1), start(1, 2)], announce("a", run=1), "attempt_superseded"),
    ],
)
def test_an_announcement_by_a_run_that_may_not_speak_is_ignored(given, announcement, reason):
    played = play(given, announcement)
    assert played.became == reason
    assert play(begin("a", attempt=1), onto=played).became == "call_unknown"


@pytest.mark.rule("RA5.commit")
@pytest.mark.parametrize("announcement", [announce("a", run=1), announce("a", run=1, attempt=2)])
def test_an_announcement_before_the_start_of_its_attempt_is_ignored(announcement):
    played = play(ask(), [] if announcement.attempt is None else start(1), announcement)
    assert played.outcomes[-1] == "ignored"
    assert stages(played) == {}


@pytest.mark.rule("RA5.commit", "RA5.start")
def test_calls_announced_without_a_run_id_are_never_dispatched_and_may_start():
    answered = play(ask(), start(), tokens("so"), announce("a"), end())
    assert [
        effects for effects in answered.effects[1:] if any(e.effect == "call_function" for e in effects)
    ] == []
    assert stages(answered) == {"a": "announced"}
    assert play(begin("a"), onto=answered).texts == ["assistant: so", *STARTED]


@pytest.mark.rule("RA5.commit")
def test_the_end_of_a_run_dispatches_none_that_was_announced_without_its_id():
    played = play(ask(), start(1), announce("a"), announce("b", run=1), end(1))
    assert effects_of(played) == ["call b"]
    assert stages(played) == {"a": "announced", "b": "dispatched"}


@pytest.mark.rule("RA5.attempts", "RA5.commit")
def test_the_next_attempt_leaves_what_was_announced_without_the_id_of_its_run():
    played = play(ask(), start(1), announce("a"), announce("b", run=1), start(1, 2))
    assert stages(played) == {"a": "announced"}


@pytest.mark.rule("RA5.start")
def test_a_worker_does_not_start_what_was_announced_without_a_run_id():
    played = play(announce("a"), begin("a", attempt=1))
    assert played.became == "call_unknown"
    assert played.texts == []


@pytest.mark.rule("RA5.commit")
def test_an_id_that_is_open_already_is_skipped():
    played = play(announce("a"), announce("a", "b"), announce("a", "b"))
    assert played.reasons == [None, None, "call_open_already"]
    assert played.frames_with(CallAnnounced) == [1, 2]
    assert play(begin("c"), announce("c")).became == "call_open_already"


@pytest.mark.rule("RA5.commit")
def test_an_id_named_twice_in_one_announcement_is_one_call():
    played = play(ask(), start(1), announce("a", ("a", "g"), run=1), end(1))
    assert effects_of(played) == ["call a"]


@pytest.mark.rule("RA5.commit")
def test_an_empty_announcement_changes_nothing():
    played = play(ask(), start(1), announce(run=1))
    assert (played.became, played.changes) == ("applied", ())


@pytest.mark.rule("RA5.commit")
def test_an_id_whose_call_settled_is_announced_as_a_new_call():
    played = play(
        begin("a"), result("a", 1, run_llm=False), ask(), committed("a", run=3), begin("a", attempt=1)
    )
    assert played.texts == ["assistant calls a(a)", "tool a: 1", *STARTED]


# Who may start a call.


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize("attempt", [1, 3, None])
def test_the_first_start_of_a_dispatched_call_is_applied_whatever_its_attempt(attempt):
    played = play(ask(), committed("a", run=1), begin("a", attempt=attempt))
    assert played.became == "applied"
    assert played.texts == STARTED


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize("first", [1, 2, None])
@pytest.mark.parametrize("later", [1, 2, 3, None])
@pytest.mark.parametrize("boast", [False, True])
def test_every_later_start_is_ignored_whatever_its_attempt_and_whatever_it_says(first, later, boast):
    played = play(ask(), committed("a", run=1), begin("a", attempt=first))
    again = play(begin("a", attempt=later, safe_to_retry=boast), onto=played)
    assert again.became == "call_started"
    assert again.changes == ()


@pytest.mark.rule("RA5.start")
def test_a_worker_starts_only_what_was_dispatched():
    assert play(begin("a", attempt=1)).became == "call_unknown"
    assert play(ask(), start(1), announce("a", run=1), begin("a", attempt=1)).outcomes[-1] == "ignored"
    assert play(begin("a"), result("a", 1), begin("a", attempt=1)).became == "call_settled"


@pytest.mark.rule("RA5.start", "RA5.commit")
def test_nobody_starts_what_a_run_has_announced_and_not_committed():
    played = play(ask(), start(1), announce("a", run=1), begin("a"))
    assert played.outcomes[-1] == "ignored"
    assert played.texts == []


@pytest.mark.rule("RA5.start")
def test_a_call_that_is_safe_to_retry_is_taken_over_by_a_higher_attempt():
    played = play(
        ask(),
        committed("a", run=1),
        begin("a", attempt=1, safe_to_retry=True, worker="w1"),
        begin("a", attempt=2, worker="w2"),
    )
    assert played.became == "applied"
    assert [type(change) for change in played.changes] == [CallStarted]
    assert played.texts == STARTED
    assert [play(begin("a", attempt=n), onto=played).became for n in (1, 2, 3)] == [
        "call_started",
        "call_started",
        "applied",
    ]


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize("attempt", [None, 1, 2])
def test_no_other_attempt_takes_over_a_call_that_is_safe_to_retry(attempt):
    given = [ask(), committed("a", run=1), begin("a", attempt=2, safe_to_retry=True)]
    assert play(given, begin("a", attempt=attempt)).became == "call_started"


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize("sync", [True, False])
def test_a_call_keeps_the_kind_that_it_started_with(sync):
    given = [ask(), committed("a", run=1), begin("a", attempt=1, sync=sync, safe_to_retry=True)]
    played = play(given, begin("a", attempt=2, sync=not sync), result("a", 7, attempt=2))
    last = played.messages[-1]
    assert last["role"] == ("tool" if sync else "developer")
    assert played.asked == [1, 7]


TAKEN_OVER = [
    ask(),
    committed("a", run=1),
    begin("a", attempt=1, safe_to_retry=True),
    begin("a", attempt=2),
]


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize("said", [result("a", 1, attempt=1), cancel("a", attempt=1, run_llm=True)])
def test_the_attempt_before_is_fenced(said):
    played = play(TAKEN_OVER, said)
    assert played.became == "attempt_superseded"
    assert played.texts == STARTED


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize("attempt", [2, 3, None])
@pytest.mark.parametrize(
    ("settle", "says"),
    [(lambda n: result("a", 1, attempt=n), "1"), (lambda n: cancel("a", attempt=n), "CANCELLED")],
)
def test_the_latest_attempt_a_later_one_and_whoever_names_none_may_settle(attempt, settle, says):
    assert play(TAKEN_OVER, settle(attempt)).texts[-1] == f"tool a: {says}"


@pytest.mark.rule("RA5.start")
def test_a_result_may_name_an_attempt_where_the_start_named_none():
    assert play(begin("a"), result("a", 1, attempt=1)).texts[-1] == "tool a: 1"


@pytest.mark.rule("RA5.start")
def test_a_start_that_names_no_attempt_is_of_none_and_any_attempt_may_take_it_over():
    played = play(begin("a", safe_to_retry=True), begin("a", attempt=1))
    assert played.became == "applied"
    assert [type(change) for change in played.changes] == [CallStarted]


WAITS = {"for": "a person", "deadline": None}


@pytest.mark.rule("RA5.start")
def test_the_worker_of_a_call_may_publish_its_start_again_when_the_call_waits():
    given = [ask(), committed("a", run=1), begin("a", attempt=1, worker="w")]
    played = play(given, begin("a", attempt=1, worker="w", waiting=WAITS))
    assert played.became == "applied"
    assert played.texts == STARTED
    assert played.state.calls.open["a"].running.waiting


@pytest.mark.rule("RA5.start")
@pytest.mark.parametrize(
    "stranger",
    [
        begin("a", attempt=2, worker="w", waiting=WAITS),
        begin("a", attempt=1, worker="other", waiting=WAITS),
        begin("a", worker="w", waiting=WAITS),
    ],
)
def test_nobody_else_says_that_a_call_waits(stranger):
    played = play(ask(), committed("a", run=1), begin("a", attempt=1, worker="w"), stranger)
    assert played.became == "call_started"
    assert not played.state.calls.open["a"].running.waiting


@pytest.mark.rule("RA5.start")
def test_a_call_that_settled_does_not_wait_again():
    given = [ask(), committed("a", run=1), begin("a", attempt=1), result("a", 1, attempt=1)]
    assert play(given, begin("a", attempt=1, waiting=WAITS)).became == "call_settled"


# Barred ids.

BARRING = {
    "forgotten by an interruption": [announce("a"), interrupt()],
    "cancelled before its start": [announce("a"), cancel("a")],
    "forgotten after its dispatch": [ask(), committed("a", run=1), interrupt()],
    "cancelled after its dispatch": [ask(), committed("a", run=1), cancel("a", run_llm=True)],
    "forgotten with its run": [ask(), start(1), announce("a", run=1), fail(1)],
    "forgotten with its attempt": [ask(), start(1), announce("a", run=1), start(1, 2)],
    "forgotten by a second start": [start(), announce("a"), start()],
    "forgotten at the end": [announce("a"), finish()],
    "forgotten at the end that reopened": [announce("a"), finish(), append("hi")],
}


@pytest.mark.rule("RA5.barred")
@pytest.mark.parametrize("given", BARRING.values(), ids=BARRING.keys())
@pytest.mark.parametrize("attempt", [None, 1])
def test_a_call_that_is_barred_does_not_start(given, attempt):
    barred = play(given)
    assert CallSettled in {type(change) for step in barred.steps for change in step.changes}
    played = play(begin("a", attempt=attempt), onto=barred)
    assert played.became == "call_forgotten"
    assert played.messages == barred.messages


@pytest.mark.rule("RA5.barred")
@pytest.mark.parametrize("given", BARRING.values(), ids=BARRING.keys())
def test_an_id_that_is_announced_again_may_start(given):
    assert play(given, announce("a"), begin("a")).texts[-2:] == STARTED


@pytest.mark.rule("RA5.barred")
@pytest.mark.parametrize("settled", [result("a", 1), cancel("a")])
def test_a_call_that_started_is_not_barred_when_it_settles(settled):
    assert play(announce("a"), begin("a"), settled, begin("a")).became == "applied"


@pytest.mark.rule("RA5.barred")
def test_the_newest_256_barred_ids_are_remembered():
    ids = [f"call-{n}" for n in range(257)]
    barred = play(announce(*ids), interrupt())
    became = [play(begin(call_id), onto=barred).became for call_id in (ids[0], ids[1], ids[256])]
    assert became == ["applied", "call_forgotten", "call_forgotten"]


@pytest.mark.rule("RA5.barred")
def test_an_id_that_is_barred_twice_is_remembered_as_the_newer():
    ids = [f"call-{n}" for n in range(256)]
    barred = play(
        announce(*ids), interrupt(), announce(ids[0]), interrupt(), announce("one more"), interrupt()
    )
    became = [play(begin(call_id), onto=barred).became for call_id in (ids[0], ids[1])]
    assert became == ["call_forgotten", "applied"]

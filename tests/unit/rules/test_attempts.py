"""Only the latest attempt answers a run, and its output replaces that of earlier attempts (RA5.attempts)."""

import pytest
from tests.unit.rules.dsl import (
    announce,
    answer,
    append,
    ask,
    begin,
    end,
    fail,
    finish,
    hear,
    interrupt,
    play,
    push,
    run_id,
    start,
    think,
    thinking,
    thought,
    tokens,
    update,
    words,
)

from frameledger.evolve.changes import MessageEnded, RunClosed, RunStarted
from frameledger.frames import (
    LLMContextAssistantTimestampFrame,
    VisionFullResponseEndFrame,
    VisionFullResponseStartFrame,
    VisionTextFrame,
)


def one_of_each(run, attempt=None):
    """One frame of each type that a response is made of, all of them from this attempt."""
    return [
        *tokens("x", run=run, attempt=attempt),
        *words("x", run=run, attempt=attempt),
        VisionTextFrame(text="x", run_id=run, attempt=attempt),
        think(run, attempt),
        *thinking("x", run=run, attempt=attempt),
        thought("x", run, attempt),
        push(run, attempt),
        announce("x", run=run, attempt=attempt),
        end(run, attempt),
        VisionFullResponseEndFrame(run_id=run, attempt=attempt),
    ]


def starts(run, attempt=None):
    return [start(run, attempt), VisionFullResponseStartFrame(run_id=run, attempt=attempt)]


def each(frames):
    return pytest.mark.parametrize("frame", frames, ids=lambda frame: frame.type)


THIS = run_id(1)


# Attempts.


@pytest.mark.rule("RA5.attempts")
def test_the_next_attempt_takes_back_all_that_the_earlier_one_said():
    first = [start(2), think(2), thinking("hm", run=2), thought("sig", 2), tokens("one", run=2), push(2)]
    still_open = [tokens(" and", run=2), think(2), thinking("open", run=2)]
    played = play(append("hi"), ask(), first, still_open, start(2, 2))
    assert played.texts == ["user: hi"]
    assert [change.position for change in played.changes if isinstance(change, MessageEnded)] == [2, 3]
    then = play(tokens("two", run=2, attempt=2), end(2, 2), onto=played)
    assert then.texts == ["user: hi", "assistant: two"]
    assert then.positions == [1, 4]


@pytest.mark.rule("RA5.attempts")
def test_the_next_attempt_leaves_what_others_said_meanwhile():
    played = play(
        ask(), start(1), tokens("one", run=1), push(1), append("mine"), begin("a"), hear("words"), start(1, 2)
    )
    assert played.texts == ["user: mine", "assistant calls a(a)", "tool a: IN_PROGRESS", "user: words"]


@pytest.mark.rule("RA5.attempts", "RA5.positions")
def test_no_attempt_is_given_a_place_that_an_earlier_one_had():
    played = play(
        ask(), start(1), tokens("one", run=1), push(1), start(1, 2), tokens("two", run=1, attempt=2)
    )
    played = play(push(1, 2), start(1, 3), tokens("three", run=1, attempt=3), end(1, 3), onto=played)
    assert (played.texts, played.positions) == (["assistant: three"], [3])


@pytest.mark.rule("RA5.attempts")
def test_the_next_attempt_forgets_the_calls_that_the_earlier_one_announced_and_no_others():
    played = play(announce("other"), ask(), start(2), announce("a", "b", run=2), start(2, 2))
    assert list(played.state.calls.open) == ["other"]
    then = play(
        announce("b", run=2, attempt=2), end(2, 2), begin("a", attempt=1), begin("b", attempt=1), onto=played
    )
    assert then.reasons[-2:] == ["call_forgotten", None]
    assert then.texts == ["assistant calls b(b)", "tool b: IN_PROGRESS"]


@pytest.mark.rule("RA5.attempts")
def test_the_end_of_an_attempt_dispatches_only_what_it_announced_itself():
    played = play(ask(), start(1), announce("a", run=1), start(1, 2), end(1, 2))
    assert played.state.calls.open == {}
    assert not any(effect.effect == "call_function" for effects in played.effects for effect in effects)


@pytest.mark.rule("RA5.attempts")
@pytest.mark.parametrize(
    ("attempts", "became"),
    [
        ([None], "applied"),
        ([1], "applied"),
        ([3], "applied"),
        ([None, 1], "attempt_superseded"),
        ([1, None], "attempt_superseded"),
        ([2, 2], "attempt_superseded"),
        ([2, 1], "attempt_superseded"),
        ([2, None], "attempt_superseded"),
        ([1, 3], "applied"),
        ([1, 3, 2], "attempt_superseded"),
    ],
)
def test_an_attempt_begins_only_above_the_latest_and_an_absent_one_is_the_first(attempts, became):
    played = play(ask(), [start(1, attempt) for attempt in attempts])
    assert played.became == became
    if became == "applied":
        assert RunStarted(THIS, attempts[-1] or 1) in played.changes
        assert played.state.runs.open.attempt == (attempts[-1] or 1)


@pytest.mark.rule("RA5.attempts")
def test_a_repeated_start_leaves_the_response_as_it_is():
    played = play(ask(), start(1), tokens("one", run=1), start(1), start(1, 1), tokens(" two", run=1), end(1))
    assert played.texts == ["assistant: one two"]


@pytest.mark.rule("RA5.attempts")
def test_the_next_attempt_keeps_the_run_and_asks_for_nothing():
    played = play(ask(), start(1), ask(), start(1, 2))
    assert played.state.runs.open.run_id == THIS
    assert (played.asked, played.opened, played.effects[-1]) == ([1, 3], [1], ())
    assert not any(isinstance(change, RunClosed) for change in played.changes)


@pytest.mark.rule("RA5.attempts", "RA5.messages")
def test_the_next_attempt_takes_back_nothing_of_a_history_that_replaced_its_words():
    played = play(ask(), start(1), tokens("one", run=1), push(1), update("new", "history"), start(1, 2))
    assert (played.texts, played.became) == (["user: new", "user: history"], "applied")
    then = play(tokens("x", run=1, attempt=2), push(1, 2), start(1, 3), onto=played)
    assert then.texts == ["user: new", "user: history"]


@pytest.mark.rule("RA5.attempts")
def test_an_attempt_takes_back_nothing_of_another_run():
    played = play(ask(), answer("kept", run=1), ask(), start(5), tokens("lost", run=5), push(5), start(5, 2))
    assert played.texts == ["assistant: kept"]


# The fence.


@each(one_of_each(THIS, 1) + one_of_each(THIS))
@pytest.mark.rule("RA5.fence")
def test_frames_of_a_superseded_attempt_are_ignored(frame):
    before = play(ask(), start(1), tokens("one", run=1), start(1, 2), tokens("two", run=1, attempt=2))
    after = play(frame, onto=before)
    assert (after.became, after.changes) == ("attempt_superseded", ())
    assert play(end(1, 2), onto=after).texts == ["assistant: two"]


@each([*one_of_each(THIS), *starts(THIS), *starts(THIS, 2), fail(THIS)])
@pytest.mark.rule("RA5.fence")
@pytest.mark.parametrize(
    "closes",
    [
        [start(1), end(1)],
        [start(1), interrupt()],
        [start(1), fail(1)],
        [start(1), finish()],
        [start(), end()],
    ],
    ids=["ended", "interrupted", "failed", "context_ended", "adopted"],
)
def test_frames_of_a_run_that_is_over_are_ignored(closes, frame):
    after = play(ask(), closes, frame)
    assert (after.became, after.changes) == ("run_over", ())


@each([*one_of_each("nobody asked"), *starts("nobody asked"), fail("nobody asked")])
@pytest.mark.rule("RA5.fence")
@pytest.mark.parametrize("before", [[], [start()], [ask()], [ask(), start(1)], [ask(), start()]])
def test_frames_of_a_run_that_never_was_are_ignored(before, frame):
    after = play(before, frame)
    assert (after.became, after.changes) == ("run_over", ())


@each([*one_of_each(run_id(3)), *starts(run_id(3)), fail(run_id(3))])
@pytest.mark.rule("RA5.fence", "R4.3")
def test_frames_of_a_remembered_run_are_ignored(frame):
    after = play(ask(), start(1), ask(), frame)
    assert (after.became, after.changes) == ("run_over", ())


# An announcement that names no run is nobody's response: it is registered at any time.
@each([f for f in (*one_of_each(None), *starts(None), fail()) if f.type != "FunctionCallsStartedFrame"])
@pytest.mark.rule("RA5.fence")
def test_frames_that_name_no_run_are_ignored_while_a_response_that_does_is_open(frame):
    before = play(ask(), start(1), tokens("one", run=1))
    after = play(frame, onto=before)
    assert (after.became, after.changes) == ("run_response_open", ())
    assert play(end(1), onto=after).texts == ["assistant: one"]


@each([*one_of_each(THIS), *one_of_each(THIS, 2)])
@pytest.mark.rule("RA5.fence")
def test_frames_of_an_attempt_that_has_not_started_are_ignored(frame):
    after = play(ask(), frame)
    assert (after.became, after.changes) == ("no_open_response", ())
    assert after.state.runs.open.untouched


@each(one_of_each(THIS, 2))
@pytest.mark.rule("RA5.fence")
def test_frames_ahead_of_their_attempts_start_are_ignored(frame):
    after = play(ask(), start(1), tokens("one", run=1), frame)
    assert (after.became, after.changes) == ("no_open_response", ())
    assert play(end(1), onto=after).texts == ["assistant: one"]


@pytest.mark.rule("RA5.fence", "R4.4")
@pytest.mark.parametrize(
    ("started", "failing", "became"),
    [
        ([], 1, "applied"),
        ([], None, "applied"),
        ([1], 1, "applied"),
        ([1], 2, "applied"),
        ([1, 2], 2, "applied"),
        ([1, 2], 3, "applied"),
        ([1, 2], None, "applied"),
        ([1, 2], 1, "attempt_superseded"),
    ],
)
def test_a_fatal_error_counts_from_the_latest_attempt_a_later_one_or_without_one(started, failing, became):
    after = play(ask(), [start(1, attempt) for attempt in started], fail(1, failing))
    assert after.became == became
    assert (after.state.runs.open is None) == (became == "applied")


@pytest.mark.rule("RA5.fence", "R4.4")
def test_a_fatal_error_keeps_what_was_said_and_forgets_only_the_calls_of_its_run():
    played = play(announce("other"), ask(), start(2), tokens("half", run=2), announce("a", run=2), fail(2))
    assert (played.texts, list(played.state.calls.open)) == (["assistant: half"], ["other"])


@pytest.mark.rule("RA5.fence", "R4.4")
def test_an_error_that_is_not_fatal_is_only_recorded():
    played = play(ask(), start(1), tokens("a", run=1), fail(1, fatal=False), tokens("b", run=1), end(1))
    assert (played.texts, played.outcomes) == (["assistant: ab"], ["applied"] * 6)
    assert play(fail(fatal=False)).became == "applied"


@pytest.mark.rule("RA5.attempts", "RA5.request")
def test_a_run_keeps_when_it_was_requested_and_when_it_opened_through_its_attempts():
    for attempts in ([], [start(2)], [start(2), start(2, 2)]):
        run = play(ask(), ask(), fail(1), attempts).state.runs.open
        assert (run.asked_version, run.opened_version) == (2, 3)


@pytest.mark.rule("RA5.attempts")
def test_an_attempt_takes_nothing_back_that_another_response_has_said():
    played = play(start(), tokens("before"), ask(), push(), tokens("and then"), start(3), start(3, 2))
    assert played.texts == ["assistant: before", "assistant: and then"]


@pytest.mark.rule("RA5.fence")
def test_a_time_of_an_answer_passes_the_fence_of_its_run():
    stamp = LLMContextAssistantTimestampFrame(timestamp="2026-03-01T12:00:00Z", run_id=run_id(1))
    assert play(ask(), start(1), stamp).became == "applied"
    assert play(ask(), start(1), end(1), stamp).became == "run_over"


@pytest.mark.rule("RA5.fence")
def test_a_run_id_that_comes_again_after_its_run_is_no_new_run():
    played = play(ask(), answer("one", run=1), answer("two", run=1), answer("three", run=1, attempt=9))
    assert played.texts == ["assistant: one"]
    assert played.reasons[4:] == ["run_over"] * 6

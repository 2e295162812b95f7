"""Workers that die, freeze or are stopped during an answer: each run is answered once, and other frames are ignored."""

import json
import signal
import time
from contextlib import ExitStack

import pytest
from tests.bounds import ON_SERVERS
from tests.support.answerers import (
    QUICK,
    STEADY,
    Plan,
    answerer,
    ask,
    context,
    frame,
    rows,
    spoken,
    until_closed,
)
from tests.support.killable import projector
from tests.support.polling import pause
from tests.support.road import Raw, road_of_its_own  # noqa: F401  # a fixture
from tests.support.tiers import long

POINTS = (
    "claim",
    "compose",
    "publish LLMFullResponseStartFrame",
    "published LLMFullResponseStartFrame",
    "published LLMTextFrame",
    "publish LLMFullResponseEndFrame",
    "published LLMFullResponseEndFrame",
)
"""Before and after the claim, before the start, before the first token, in the middle, and before and after the end."""

BETWEEN = "published FunctionCallsStartedFrame"
"""Between the announcement and the end."""

SCRIPT = {
    "replies": [
        {
            "when": {"user": "look"},
            "say": [{"text": "Let me see."}, {"call": "look", "arguments": {"at": 1}}],
        },
        {"when": {"user": "slow"}, "say": [{"text": "Well,"}, {"delay": 0.5}, {"text": " good day."}]},
        {"when": {"user": "very"}, "say": [{"text": "Well,"}, {"delay": 60}, {"text": " good day."}]},
        {"say": [{"text": "Good"}, {"delay": 0.06}, {"text": " day to you."}]},
    ]
}


AT_ONCE = {"replies": [{"say": [{"text": "Well,"}, {"text": " good day."}]}]}
"""The same answer as in `SCRIPT`, without the pauses."""


@pytest.fixture
def settings(road, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    update = {**QUICK, "inference_provider": "scripted", "inference_script": script}
    return road.settings.model_copy(update=update)


def answers(road, context_id):
    """Returns how many end frames were applied."""
    [(count,)] = rows(
        road,
        "SELECT count(*) FROM frames "
        "WHERE context_id = %s AND type = 'LLMFullResponseEndFrame' AND outcome = 'applied'",
        context_id,
    )
    return count


def attempts(road, context_id):
    return [
        one
        for (one,) in rows(
            road,
            "SELECT (payload ->> 'attempt')::int FROM frames "
            "WHERE context_id = %s AND type = 'LLMFullResponseStartFrame' AND outcome = 'applied' ORDER BY version",
            context_id,
        )
    ]


def are_at_least(found, first):
    """Returns whether the found attempts ascend, and each is the expected one or a later one: on a busy machine the
    lease of a living worker may end."""
    return (
        len(found) >= len(first)
        and found == sorted(set(found))
        and all(one >= other for one, other in zip(found, first, strict=False))
    )


def only_the_last_is_dispatched(road, context_id):
    """Returns whether, of the calls that successive attempts announced, only the last is dispatched, and the others are
    forgotten."""
    query = "SELECT status FROM tool_calls WHERE context_id = %s ORDER BY requested_version"
    *before, last = [status for (status,) in rows(road, query, context_id)]
    return set(before) == {"forgotten"} and last == "dispatched"


def naming(model):
    """Returns a frame that chooses this model, so that the worker that lists it answers while it lives."""
    return frame("LLMUpdateSettingsFrame", settings={"model": model})


@pytest.mark.parametrize("points", [POINTS[1::2], long(POINTS)], ids=["some", "all"])
def test_whatever_point_a_worker_is_killed_at_its_run_is_answered_once(road, settings, points):
    """Each worker serves one context, by its model; when all of them are dead, another worker takes over their work."""
    with ExitStack() as stack:
        projecting = stack.enter_context(projector(road.settings))
        doomed = {
            point: stack.enter_context(
                answerer(settings, Plan(point), models=[point], service=f"doomed-{number}")
            )
            for number, point in enumerate((*points, BETWEEN))
        }
        for point in doomed:
            ask(road, point, "Please look." if point == BETWEEN else "Hello?", naming(point))
        for point, one in doomed.items():
            assert one.ended() == -signal.SIGKILL, point
        heir = stack.enter_context(answerer(settings, service="heir"))
        until_closed(road, *doomed)

        for point in points:
            assert spoken(road, point) == [("user", "Hello?"), ("assistant", "Good day to you.")], point
            assert answers(road, point) == 1, point
        first = {
            "claim": [1],
            "compose": [2],
            "publish LLMFullResponseStartFrame": [2],
            "published LLMFullResponseStartFrame": [1, 2],
            "published LLMTextFrame": [1, 2],
            "publish LLMFullResponseEndFrame": [1, 2],
            "published LLMFullResponseEndFrame": [1],
        }
        for point in points:
            assert are_at_least(attempts(road, point), first[point]), (point, attempts(road, point))
        road.until("SELECT bool_and(finished_at IS NOT NULL) FROM claims")

        # The calls that the dead attempt announced were never dispatched; those of the next one were, once.
        assert only_the_last_is_dispatched(road, BETWEEN)
        calls = [one for one in road.records(road.names.function_calls) if one.key == BETWEEN.encode()]
        assert len({json.loads(one.value)["id"] for one in calls}) == 1

        for point in points:
            ask(road, point, "And now?")
        for point in points:
            road.until("SELECT count(*) = 2 FROM runs WHERE context_id = %s AND status = 'ended'", point)
            assert spoken(road, point)[-1] == ("assistant", "Good day to you.")
        assert heir.stop() == 0
        road.check(projecting)


@pytest.mark.long
def test_a_worker_that_was_frozen_beyond_its_lease_is_not_heard_any_more(road, settings):
    with (
        projector(road.settings) as projecting,
        answerer(settings, Plan("published LLMTextFrame", signal.SIGSTOP)) as frozen,
    ):
        ask(road, "a")
        frozen.frozen()
        with answerer(settings, service="heir") as heir:
            until_closed(road, "a")
            assert spoken(road, "a") == [("user", "Hello?"), ("assistant", "Good day to you.")]
            heir.stop()
        frozen.send(signal.SIGCONT)
        # It continues as another worker, and answers later runs.
        ask(road, "b")
        until_closed(road, "b")
        assert frozen.stop() == 0
        road.check(projecting)
    assert spoken(road, "a") == [("user", "Hello?"), ("assistant", "Good day to you.")]
    assert are_at_least(attempts(road, "a"), [1, 2])
    assert answers(road, "a") == 1
    late = "context_id = 'a' AND outcome <> 'applied'"
    assert set(rows(road, f"SELECT reason FROM frames WHERE {late}")) <= {
        ("run_over",),
        ("attempt_superseded",),
    }


@pytest.mark.long
def test_a_worker_that_is_frozen_in_the_middle_of_publishing_speaks_into_a_run_that_is_over(road, settings):
    """Frames that its producer had before its lease ended are sent when it resumes: they are on the log, and
    ignored."""
    with (
        projector(road.settings) as projecting,
        answerer(settings, Plan(BETWEEN, signal.SIGSTOP)) as frozen,
    ):
        ask(road, "a", "Please look.")
        frozen.frozen()
        with answerer(settings, service="heir") as heir:
            until_closed(road, "a")
            heir.stop()
        frozen.send(signal.SIGCONT)
        road.until(
            "SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMFullResponseEndFrame' AND reason = 'run_over')"
        )
        assert frozen.stop() == 0
        road.check(projecting)
    assert answers(road, "a") == 1
    assert only_the_last_is_dispatched(road, "a")


def is_killed_of_it(road, doomed):
    """Wait until this process was killed, and return True; or False if the run has failed first: on a busy machine a
    living worker may have lost its attempt."""
    until = time.monotonic() + ON_SERVERS
    while doomed.is_alive():
        if rows(road, "SELECT FROM runs WHERE status = 'failed'"):
            return False
        assert time.monotonic() < until
        pause()
    return doomed.ended() == -signal.SIGKILL


@pytest.mark.long
def test_three_workers_that_die_of_a_run_are_enough(road, settings):
    with projector(road.settings) as projecting:
        for number in range(3):
            with answerer(settings, Plan("published LLMTextFrame"), service=f"doomed-{number}") as doomed:
                if not number:
                    ask(road, "a")
                if not is_killed_of_it(road, doomed):
                    break
        with answerer(settings, service="heir") as heir:
            until_closed(road, "a")
            [(status, code)] = rows(road, "SELECT status, error_code FROM runs")
            assert (status, code) == ("failed", "attempts_exhausted")
            # The worker that gave it up found at least three earlier attempts.
            [(last,)] = rows(road, "SELECT attempt FROM claims WHERE context_id = 'a'")
            assert last > 3
            ask(road, "a", "And now?")
            road.until("SELECT count(*) = 1 FROM runs WHERE status = 'ended'")
            assert heir.stop() == 0
        road.check(projecting)
    assert spoken(road, "a")[-2:] == [("user", "And now?"), ("assistant", "Good day to you.")]


@pytest.mark.long
def test_two_workers_share_what_is_asked_and_answer_each_run_once(road, settings):
    settings = settings.model_copy(update=STEADY)
    contexts = [f"context-{number}" for number in range(24)]
    with (
        projector(road.settings) as projecting,
        answerer(settings) as first,
        answerer(settings) as second,
    ):
        for context_id in contexts:
            ask(road, context_id)
        until_closed(road, *contexts)
        assert [first.stop(), second.stop()] == [0, 0]
        road.check(projecting)
    for context_id in contexts:
        assert spoken(road, context_id) == [("user", "Hello?"), ("assistant", "Good day to you.")]
    assert rows(road, "SELECT DISTINCT attempt FROM claims") == [(1,)]


def test_what_is_asked_while_nobody_serves_is_answered_by_whoever_comes_and_what_is_over_by_nobody(
    road, settings
):
    with projector(road.settings) as projecting:
        ask(road, "a")
        ask(road, "b", "Hello?")
        road.publish([Raw(b"b", frame("InterruptionFrame"))])
        road.until("SELECT count(*) = 2 FROM runs")
        until_closed(road, "b")
        with answerer(settings.model_copy(update=STEADY)) as late:
            until_closed(road, "a")
            assert late.stop() == 0
        road.check(projecting)
    assert spoken(road, "a")[-1] == ("assistant", "Good day to you.")
    assert rows(road, "SELECT context_id, attempt FROM claims") == [("a", 1)]
    assert rows(road, "SELECT type FROM frames WHERE context_id = 'b' AND run_id IS NOT NULL") == []


def test_a_worker_that_is_told_to_go_finishes_what_it_says(road, settings):
    steady = settings.model_copy(update=STEADY)
    with projector(road.settings) as projecting, answerer(steady) as leaving:
        ask(road, "a", "Be slow.")
        road.until("SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMTextFrame')")
        assert leaving.stop() == 0
        until_closed(road, "a")
        road.check(projecting)
    assert spoken(road, "a")[-1] == ("assistant", "Well, good day.")
    assert attempts(road, "a") == [1]


@pytest.mark.long
def test_a_worker_that_may_not_wait_so_long_hands_over(road, settings, tmp_path):
    hasty = settings.model_copy(update=STEADY | {"work_drain_secs": 0.0})
    script = tmp_path / "at_once.json"
    script.write_text(json.dumps(AT_ONCE))
    with projector(road.settings) as projecting, answerer(hasty) as leaving:
        ask(road, "a", "Take very long.")
        road.until("SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMTextFrame')")
        with answerer(hasty.model_copy(update={"inference_script": script}), service="heir") as heir:
            assert leaving.stop() == 0
            until_closed(road, "a")
            assert heir.stop() == 0
        road.check(projecting)
    assert context(road, "a")["messages"][-1]["content"] == "Well, good day."
    assert attempts(road, "a") == [1, 2]


@pytest.mark.long
@pytest.mark.regression("worker 85")
def test_workers_that_are_restarted_in_order_are_no_failed_attempts(road, settings, tmp_path):
    hasty = settings.model_copy(update=STEADY | {"work_drain_secs": 0.0})
    script = tmp_path / "at_once.json"
    script.write_text(json.dumps(AT_ONCE))
    with projector(road.settings) as projecting:
        ask(road, "a", "Take very long.")
        for number in range(1, 5):
            with answerer(hasty, service=f"leaving-{number}") as leaving:
                # Their number does not count: empty frames keep the run of a silent model alive.
                road.until(
                    "SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMTextFrame' "
                    "AND (payload ->> 'attempt')::int = %s)",
                    number,
                )
                assert leaving.stop() == 0
        with answerer(hasty.model_copy(update={"inference_script": script}), service="heir") as heir:
            until_closed(road, "a")
            assert heir.stop() == 0
        road.check(projecting)
    assert context(road, "a")["messages"][-1]["content"] == "Well, good day."
    assert attempts(road, "a") == [1, 2, 3, 4, 5]
    assert rows(road, "SELECT finish, deaths FROM claims") == [("done", 0)]

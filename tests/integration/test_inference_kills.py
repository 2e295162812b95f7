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
from tests.support.pipeline import Raw, own_pipeline  # noqa: F401  # a fixture
from tests.support.polling import pause
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
def settings(pipeline, tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    update = {**QUICK, "inference_provider": "scripted", "inference_script": script}
    return pipeline.settings.model_copy(update=update)


def answers(pipeline, context_id):
    """Returns how many end frames were applied."""
    [(count,)] = rows(
        pipeline,
        "SELECT count(*) FROM frames "
        "WHERE context_id = %s AND type = 'LLMFullResponseEndFrame' AND outcome = 'applied'",
        context_id,
    )
    return count


def attempts(pipeline, context_id):
    return [
        one
        for (one,) in rows(
            pipeline,
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


def only_the_last_is_dispatched(pipeline, context_id):
    """Returns whether, of the calls that successive attempts announced, only the last is dispatched, and the others are
    forgotten."""
    query = "SELECT status FROM tool_calls WHERE context_id = %s ORDER BY requested_version"
    *before, last = [status for (status,) in rows(pipeline, query, context_id)]
    return set(before) == {"forgotten"} and last == "dispatched"


def naming(model):
    """Returns a frame that chooses this model, so that the worker that lists it answers while it lives."""
    return frame("LLMUpdateSettingsFrame", settings={"model": model})


@pytest.mark.parametrize("points", [POINTS[1::2], long(POINTS)], ids=["some", "all"])
def test_whatever_point_a_worker_is_killed_at_its_run_is_answered_once(pipeline, settings, points):
    """Each worker serves one context, by its model; when all of them are dead, another worker takes over their work."""
    with ExitStack() as stack:
        projecting = stack.enter_context(projector(pipeline.settings))
        doomed = {
            point: stack.enter_context(
                answerer(settings, Plan(point), models=[point], service=f"doomed-{number}")
            )
            for number, point in enumerate((*points, BETWEEN))
        }
        for point in doomed:
            ask(pipeline, point, "Please look." if point == BETWEEN else "Hello?", naming(point))
        for point, one in doomed.items():
            assert one.ended() == -signal.SIGKILL, point
        heir = stack.enter_context(answerer(settings, service="heir"))
        until_closed(pipeline, *doomed)

        for point in points:
            assert spoken(pipeline, point) == [("user", "Hello?"), ("assistant", "Good day to you.")], point
            assert answers(pipeline, point) == 1, point
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
            assert are_at_least(attempts(pipeline, point), first[point]), (point, attempts(pipeline, point))
        pipeline.until("SELECT bool_and(finished_at IS NOT NULL) FROM claims")

        # The calls that the dead attempt announced were never dispatched; those of the next one were, once.
        assert only_the_last_is_dispatched(pipeline, BETWEEN)
        calls = [
            one for one in pipeline.records(pipeline.names.function_calls) if one.key == BETWEEN.encode()
        ]
        assert len({json.loads(one.value)["id"] for one in calls}) == 1

        for point in points:
            ask(pipeline, point, "And now?")
        for point in points:
            pipeline.until("SELECT count(*) = 2 FROM runs WHERE context_id = %s AND status = 'ended'", point)
            assert spoken(pipeline, point)[-1] == ("assistant", "Good day to you.")
        assert heir.stop() == 0
        pipeline.check(projecting)


@pytest.mark.long
def test_a_worker_that_was_frozen_beyond_its_lease_is_not_heard_any_more(pipeline, settings):
    with (
        projector(pipeline.settings) as projecting,
        answerer(settings, Plan("published LLMTextFrame", signal.SIGSTOP)) as frozen,
    ):
        ask(pipeline, "a")
        frozen.frozen()
        with answerer(settings, service="heir") as heir:
            until_closed(pipeline, "a")
            assert spoken(pipeline, "a") == [("user", "Hello?"), ("assistant", "Good day to you.")]
            heir.stop()
        frozen.send(signal.SIGCONT)
        # It continues as another worker, and answers later runs.
        ask(pipeline, "b")
        until_closed(pipeline, "b")
        assert frozen.stop() == 0
        pipeline.check(projecting)
    assert spoken(pipeline, "a") == [("user", "Hello?"), ("assistant", "Good day to you.")]
    assert are_at_least(attempts(pipeline, "a"), [1, 2])
    assert answers(pipeline, "a") == 1
    late = "context_id = 'a' AND outcome <> 'applied'"
    assert set(rows(pipeline, f"SELECT reason FROM frames WHERE {late}")) <= {
        ("run_over",),
        ("attempt_superseded",),
    }


@pytest.mark.long
def test_a_worker_that_is_frozen_in_the_middle_of_publishing_speaks_into_a_run_that_is_over(
    pipeline, settings
):
    """Frames that its producer had before its lease ended are sent when it resumes: they are on the log, and
    ignored."""
    with (
        projector(pipeline.settings) as projecting,
        answerer(settings, Plan(BETWEEN, signal.SIGSTOP)) as frozen,
    ):
        ask(pipeline, "a", "Please look.")
        frozen.frozen()
        with answerer(settings, service="heir") as heir:
            until_closed(pipeline, "a")
            heir.stop()
        frozen.send(signal.SIGCONT)
        pipeline.until(
            "SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMFullResponseEndFrame' AND reason = 'run_over')"
        )
        assert frozen.stop() == 0
        pipeline.check(projecting)
    assert answers(pipeline, "a") == 1
    assert only_the_last_is_dispatched(pipeline, "a")


def is_killed_of_it(pipeline, doomed):
    """Wait until this process was killed, and return True; or False if the run has failed first: on a busy machine a
    living worker may have lost its attempt."""
    until = time.monotonic() + ON_SERVERS
    while doomed.is_alive():
        if rows(pipeline, "SELECT FROM runs WHERE status = 'failed'"):
            return False
        assert time.monotonic() < until
        pause()
    return doomed.ended() == -signal.SIGKILL


@pytest.mark.long
def test_three_workers_that_die_of_a_run_are_enough(pipeline, settings):
    with projector(pipeline.settings) as projecting:
        for number in range(3):
            with answerer(settings, Plan("published LLMTextFrame"), service=f"doomed-{number}") as doomed:
                if not number:
                    ask(pipeline, "a")
                if not is_killed_of_it(pipeline, doomed):
                    break
        with answerer(settings, service="heir") as heir:
            until_closed(pipeline, "a")
            [(status, code)] = rows(pipeline, "SELECT status, error_code FROM runs")
            assert (status, code) == ("failed", "attempts_exhausted")
            # The worker that gave it up found at least three earlier attempts.
            [(last,)] = rows(pipeline, "SELECT attempt FROM claims WHERE context_id = 'a'")
            assert last > 3
            ask(pipeline, "a", "And now?")
            pipeline.until("SELECT count(*) = 1 FROM runs WHERE status = 'ended'")
            assert heir.stop() == 0
        pipeline.check(projecting)
    assert spoken(pipeline, "a")[-2:] == [("user", "And now?"), ("assistant", "Good day to you.")]


@pytest.mark.long
def test_two_workers_share_what_is_asked_and_answer_each_run_once(pipeline, settings):
    settings = settings.model_copy(update=STEADY)
    contexts = [f"context-{number}" for number in range(24)]
    with (
        projector(pipeline.settings) as projecting,
        answerer(settings) as first,
        answerer(settings) as second,
    ):
        for context_id in contexts:
            ask(pipeline, context_id)
        until_closed(pipeline, *contexts)
        assert [first.stop(), second.stop()] == [0, 0]
        pipeline.check(projecting)
    for context_id in contexts:
        assert spoken(pipeline, context_id) == [("user", "Hello?"), ("assistant", "Good day to you.")]
    assert rows(pipeline, "SELECT DISTINCT attempt FROM claims") == [(1,)]


def test_what_is_asked_while_nobody_serves_is_answered_by_whoever_comes_and_what_is_over_by_nobody(
    pipeline, settings
):
    with projector(pipeline.settings) as projecting:
        ask(pipeline, "a")
        ask(pipeline, "b", "Hello?")
        pipeline.publish([Raw(b"b", frame("InterruptionFrame"))])
        pipeline.until("SELECT count(*) = 2 FROM runs")
        until_closed(pipeline, "b")
        with answerer(settings.model_copy(update=STEADY)) as late:
            until_closed(pipeline, "a")
            assert late.stop() == 0
        pipeline.check(projecting)
    assert spoken(pipeline, "a")[-1] == ("assistant", "Good day to you.")
    assert rows(pipeline, "SELECT context_id, attempt FROM claims") == [("a", 1)]
    assert rows(pipeline, "SELECT type FROM frames WHERE context_id = 'b' AND run_id IS NOT NULL") == []


def test_a_worker_that_is_told_to_go_finishes_what_it_says(pipeline, settings):
    steady = settings.model_copy(update=STEADY)
    with projector(pipeline.settings) as projecting, answerer(steady) as leaving:
        ask(pipeline, "a", "Be slow.")
        pipeline.until("SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMTextFrame')")
        assert leaving.stop() == 0
        until_closed(pipeline, "a")
        pipeline.check(projecting)
    assert spoken(pipeline, "a")[-1] == ("assistant", "Well, good day.")
    assert attempts(pipeline, "a") == [1]


@pytest.mark.long
def test_a_worker_that_may_not_wait_so_long_hands_over(pipeline, settings, tmp_path):
    hasty = settings.model_copy(update=STEADY | {"work_drain_secs": 0.0})
    script = tmp_path / "at_once.json"
    script.write_text(json.dumps(AT_ONCE))
    with projector(pipeline.settings) as projecting, answerer(hasty) as leaving:
        ask(pipeline, "a", "Take very long.")
        pipeline.until("SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMTextFrame')")
        with answerer(hasty.model_copy(update={"inference_script": script}), service="heir") as heir:
            assert leaving.stop() == 0
            until_closed(pipeline, "a")
            assert heir.stop() == 0
        pipeline.check(projecting)
    assert context(pipeline, "a")["messages"][-1]["content"] == "Well, good day."
    assert attempts(pipeline, "a") == [1, 2]


@pytest.mark.long
@pytest.mark.regression("worker 85")
def test_workers_that_are_restarted_in_order_are_no_failed_attempts(pipeline, settings, tmp_path):
    hasty = settings.model_copy(update=STEADY | {"work_drain_secs": 0.0})
    script = tmp_path / "at_once.json"
    script.write_text(json.dumps(AT_ONCE))
    with projector(pipeline.settings) as projecting:
        ask(pipeline, "a", "Take very long.")
        for number in range(1, 5):
            with answerer(hasty, service=f"leaving-{number}") as leaving:
                # Their number does not count: empty frames keep the run of a silent model alive.
                pipeline.until(
                    "SELECT EXISTS (SELECT FROM frames WHERE type = 'LLMTextFrame' "
                    "AND (payload ->> 'attempt')::int = %s)",
                    number,
                )
                assert leaving.stop() == 0
        with answerer(hasty.model_copy(update={"inference_script": script}), service="heir") as heir:
            until_closed(pipeline, "a")
            assert heir.stop() == 0
        pipeline.check(projecting)
    assert context(pipeline, "a")["messages"][-1]["content"] == "Well, good day."
    assert attempts(pipeline, "a") == [1, 2, 3, 4, 5]
    assert rows(pipeline, "SELECT finish, deaths FROM claims") == [("done", 0)]

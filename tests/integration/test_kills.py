"""The projector is killed at every point of a batch: whatever was under way happens once."""

import itertools
import signal

import pytest
from tests.support.killable import ALWAYS_AT_ONCE, AT_ONCE, EACH_BY_ITSELF, STEPS, Plan, projector
from tests.support.road import FEW, Raw, mixed, road_of_its_own  # noqa: F401  # a fixture

ONCE = ("SELECT projections", "SELECT frames.context_id, contexts")
"""What a projector does once when it has taken a partition over, or only when it loads a head whose stored state is
behind: in this burst or in none. Both only read."""

WITHIN = ("after lock", "before commit")
"""Those that a batch which is one statement does not come to."""


def test_whatever_step_it_is_killed_at_each_frame_counts_once_and_each_effect_has_one_id(road):
    """Each process first finishes what its predecessor left, and is then killed in a batch of its own."""
    for step in STEPS:
        with projector(road.settings, Plan(point=step, member="it", small=EACH_BY_ITSELF)) as running:
            road.until_idle(running)
            running.arm()
            road.publish(mixed(step.replace(" ", "-")))
            assert running.ended(step) == -signal.SIGKILL, step
    with projector(road.settings, Plan(member="it")) as running:
        road.until_idle(running)
        assert running.stop() == 0
    road.check()


@pytest.mark.parametrize(
    ("small", "expected"),
    [
        (
            EACH_BY_ITSELF,
            {"before COPY frames", "UPDATE messages", "UPDATE tool_calls", "DELETE FROM outbox"},
        ),
        (ALWAYS_AT_ONCE, {f"before {AT_ONCE}", f"after sending {AT_ONCE}", "DELETE FROM outbox"}),
    ],
    ids=["each by itself", "all at once"],
)
def test_whatever_statement_or_send_it_is_killed_at_each_frame_counts_once_and_each_effect_has_one_id(
    road, small, expected
):
    """The points are those that a process which lives comes to. Each round brings the beginning of conversations, and
    the end of those that the round before began: rows are made and changed."""
    bursts = _halves()
    with projector(road.settings, Plan(tell=True, member="it", small=small)) as running:
        road.publish(next(bursts))
        road.until_idle(running)
        running.arm()
        road.publish(next(bursts))
        road.until_idle(running)
        told = running.points()
        points = [
            point for point in told if point not in ONCE and (point not in STEPS or small == ALWAYS_AT_ONCE)
        ]
        assert running.stop() == 0
    if small == ALWAYS_AT_ONCE and "UPDATE projections" in points:
        points.remove("UPDATE projections")  # once too: here no batch says so
    assert expected <= set(points), points
    assert small == EACH_BY_ITSELF or set(points).isdisjoint(WITHIN)
    for point in points:
        with projector(road.settings, Plan(point=point, member="it", small=small)) as running:
            road.until_idle(running)
            running.arm()
            road.publish(next(bursts))
            assert running.ended(point) == -signal.SIGKILL, point
    with projector(road.settings, Plan(member="it")) as running:
        road.publish(next(bursts))
        road.until_idle(running)
    road.check()


def test_nobody_waits_for_one_that_was_killed_if_the_next_has_its_name(road):
    with projector(road.settings, Plan(member="it", session_ms=1_800_000)) as running:
        road.publish(mixed("before", FEW))
        road.until_idle(running)
        running.send(signal.SIGKILL)
        assert running.ended() == -signal.SIGKILL
    with projector(road.settings, Plan(member="it", session_ms=1_800_000)) as running:
        road.publish(mixed("after", FEW))
        road.until_idle(running)
    road.check()


def _halves():
    left: list[Raw] = []
    for number in itertools.count(1):
        records = mixed(str(number), FEW)
        middle = len(records) // 2
        yield left + records[:middle]
        left = records[middle:]

"""The projector is killed at every point of a batch, in either way to write one: run by `make chaos`.

`make test` kills it at all points of the one way and at those of the other where that is another thing.
"""

import itertools

import pytest
from tests.support import erasing
from tests.support.kill_rounds import erasures, halves, kill_at_each, points_of
from tests.support.killable import SINGLE_STATEMENT, STATEMENT_PER_TABLE, STEPS, Plan, finish
from tests.support.road import mixed, road_of_its_own  # noqa: F401  # a fixture


def test_whatever_step_it_is_killed_at_all_histories_are_told_once(road):
    bursts = (mixed(str(number)) for number in itertools.count())
    kill_at_each(road, STATEMENT_PER_TABLE, STEPS, bursts)
    finish(road, Plan(member="it"))
    road.check()


@pytest.mark.parametrize(
    "small", [STATEMENT_PER_TABLE, SINGLE_STATEMENT], ids=["each by itself", "all at once"]
)
def test_whatever_point_it_is_killed_at_each_frame_counts_once_and_each_effect_has_one_id(road, small):
    bursts = halves()
    kill_at_each(road, small, points_of(road, small, bursts), bursts)
    road.publish(next(bursts))
    finish(road, Plan(member="it"))
    road.check()


@pytest.mark.parametrize("small", [STATEMENT_PER_TABLE, None], ids=["each by itself", "as usual"])
def test_whatever_point_it_is_killed_at_each_conversation_is_erased_once(road, small):
    bursts = erasures()
    points = points_of(road, small, bursts)
    kill_at_each(road, small, points, bursts)
    finish(road, Plan(member="it"))
    erasing.check(road, rounds=len(points) + 1)

"""The projector is killed at every point of a batch, for both ways of writing one: run by `make chaos`.

`make test` kills it at all points of one way, and at those points of the other that differ.
"""

import itertools

import pytest
from tests.support import erasing
from tests.support.kill_rounds import erasures, halves, kill_at_each, points_of
from tests.support.killable import SINGLE_STATEMENT, STATEMENT_PER_TABLE, STEPS, Plan, finish
from tests.support.pipeline import mixed, own_pipeline  # noqa: F401  # a fixture


def test_whatever_step_it_is_killed_at_all_histories_are_told_once(pipeline):
    bursts = (mixed(str(number)) for number in itertools.count())
    kill_at_each(pipeline, STATEMENT_PER_TABLE, STEPS, bursts)
    finish(pipeline, Plan(member="it"))
    pipeline.check()


@pytest.mark.parametrize(
    "small", [STATEMENT_PER_TABLE, SINGLE_STATEMENT], ids=["each by itself", "all at once"]
)
def test_whatever_point_it_is_killed_at_each_frame_counts_once_and_each_effect_has_one_id(pipeline, small):
    bursts = halves()
    kill_at_each(pipeline, small, points_of(pipeline, small, bursts), bursts)
    pipeline.publish(next(bursts))
    finish(pipeline, Plan(member="it"))
    pipeline.check()


@pytest.mark.parametrize("small", [STATEMENT_PER_TABLE, None], ids=["each by itself", "as usual"])
def test_whatever_point_it_is_killed_at_each_conversation_is_erased_once(pipeline, small):
    bursts = erasures()
    points = points_of(pipeline, small, bursts)
    kill_at_each(pipeline, small, points, bursts)
    finish(pipeline, Plan(member="it"))
    erasing.check(pipeline, rounds=len(points) + 1)

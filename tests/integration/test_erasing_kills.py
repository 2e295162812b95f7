"""The projector is killed at the points of a batch that erases: each conversation is erased once, and its next life
begins once.

`make chaos` kills it at every statement (tests/chaos/kills.py).
"""

import pytest
from tests.support import erasing
from tests.support.kill_rounds import erasures, kill_at_each, points_of
from tests.support.killable import STATEMENT_PER_TABLE, Plan, projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.support.tiers import long

OF_ANY_BATCH = ("before COPY ", "in the middle of COPY ", "send to ")
"""Statements that every batch has: `test_projector_kills.py` shows that it may end there."""


@pytest.mark.parametrize("small", [long(STATEMENT_PER_TABLE), None], ids=["each by itself", "as usual"])
def test_whatever_point_it_is_killed_at_each_conversation_is_erased_once(pipeline, small):
    bursts = erasures()
    told = points_of(pipeline, small, bursts)
    (erase,) = [one for one in told if "erase_at" in one]
    if small is None:
        # Batches are written statement by statement here anyway, so only the steps of the erasure are tested again.
        points = [erase, "before commit", "after commit"]
    else:
        points = [one for one in told if not one.startswith(OF_ANY_BATCH)]
    assert {"after lock", "before commit", "after commit"} <= set(told), told
    points.append("in the middle of COPY frames")
    kill_at_each(pipeline, small, points, bursts)
    with projector(pipeline.settings, Plan(member="it")) as running:
        pipeline.until_idle(running)
    erasing.check(pipeline, rounds=len(points) + 1)

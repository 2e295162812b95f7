"""The projector is killed at the steps of a batch; after the restart every frame and effect counts once.

`make chaos` kills it at every statement of either way to write a batch (tests/chaos/kills.py).
"""

import signal

import pytest
from tests.support.kill_rounds import halves, kill_at_each, points_of
from tests.support.killable import AT_ONCE, SINGLE_STATEMENT, STATEMENT_PER_TABLE, Plan, projector
from tests.support.pipeline import FEW, mixed, own_pipeline  # noqa: F401  # a fixture
from tests.support.tiers import long

WITHIN = ("after lock", "before commit")
"""Steps that a batch written by one statement does not reach."""

WRITTEN_BY_ITSELF = (
    "before lock",
    "UPDATE projections",
    "after lock",
    "in the middle of COPY contexts",
    "UPDATE messages",
    "in the middle of COPY frames",
    "in the middle of COPY outbox",
    "before commit",
    "after commit",
)
"""Points of a batch that is written statement by statement: around its transaction and, within it, at its begin, an
update, an insert and its end. A kill between these is rolled back like a kill at them. Before and after the
transaction, such a batch does the same as one that is written by one statement."""


@pytest.mark.parametrize("step", [3, long(1)])
def test_whatever_point_it_is_killed_at_each_frame_counts_once_and_each_effect_has_one_id(pipeline, step):
    """Each batch is one statement. The points are all those that a process passes that is not killed, or every third of
    them."""
    bursts = halves()
    points = points_of(pipeline, SINGLE_STATEMENT, bursts)
    assert {f"before {AT_ONCE}", f"after sending {AT_ONCE}", "DELETE FROM outbox"} <= set(points), points
    assert set(points).isdisjoint(WITHIN)
    kill_at_each(pipeline, SINGLE_STATEMENT, points[::step], bursts)
    finish_and_check(pipeline, bursts)


@pytest.mark.long
def test_whatever_statement_of_its_transaction_it_is_killed_at_each_frame_counts_once(pipeline):
    bursts = halves()
    assert set(WRITTEN_BY_ITSELF) <= set(points_of(pipeline, STATEMENT_PER_TABLE, bursts))
    kill_at_each(pipeline, STATEMENT_PER_TABLE, WRITTEN_BY_ITSELF, bursts)
    finish_and_check(pipeline, bursts)


def test_nobody_waits_for_one_that_was_killed_if_the_next_has_its_name(pipeline):
    with projector(pipeline.settings, Plan(member="it", session_ms=1_800_000)) as running:
        pipeline.publish(mixed("before", FEW))
        pipeline.until_idle(running)
        running.send(signal.SIGKILL)
        assert running.ended() == -signal.SIGKILL
    with projector(pipeline.settings, Plan(member="it", session_ms=1_800_000)) as running:
        pipeline.publish(mixed("after", FEW))
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check()


def finish_and_check(pipeline, bursts):
    with projector(pipeline.settings, Plan(member="it")) as running:
        pipeline.publish(next(bursts))
        pipeline.until_idle(running)
        assert running.stop() == 0
    pipeline.check()

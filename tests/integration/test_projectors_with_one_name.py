"""Two projectors with one name: the first continues undisturbed, and the second reports the conflict and ends."""

import signal

import psycopg
import pytest
from tests.support.batches import value_of
from tests.support.killable import Plan, projector
from tests.support.pipeline import mixed, own_pipeline  # noqa: F401  # a fixture

NAMED = Plan(member="it")


@pytest.mark.regression("fault 9")
def test_of_two_projectors_of_one_name_the_first_goes_on_and_the_second_ends(pipeline):
    with projector(pipeline.settings, NAMED) as first:
        pipeline.until_idle(first)
        pipeline.until("SELECT count(*) = 4 FROM projections")
        with psycopg.connect(pipeline.address) as connection:
            # Epochs are not compared: on a busy machine a projector may take over its own partitions again.
            before = value_of(connection, "SELECT json_agg(owner ORDER BY partition) FROM projections")
        with projector(pipeline.settings, NAMED) as second:
            pipeline.publish(mixed("meanwhile"))
            pipeline.until_idle(first)
            assert second.ended() == 1
        assert first.is_alive()
        with psycopg.connect(pipeline.address) as connection:
            assert (
                value_of(connection, "SELECT json_agg(owner ORDER BY partition) FROM projections") == before
            )
        pipeline.publish(mixed("afterwards"))
        pipeline.until_idle(first)
        assert first.stop() == 0
    pipeline.check()


@pytest.mark.long
@pytest.mark.regression("fault 9")
def test_one_that_comes_back_when_another_has_its_name_gives_way(pipeline):
    """Its database sessions were ended, as a server ends those of an unreachable machine."""
    with projector(pipeline.settings, NAMED) as first:
        pipeline.until_idle(first)
        pipeline.until("SELECT count(*) = 4 FROM projections")
        # The second one waits for the first one's session timeout.
        with projector(pipeline.settings, Plan(member="it", session_ms=30_000)) as second:
            first.send(signal.SIGSTOP)
            with psycopg.connect(pipeline.address, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(owner_pid) FROM (SELECT DISTINCT owner_pid FROM projections) AS one"
                )
                before = value_of(connection, "SELECT max(owner_pid) FROM projections")
            pipeline.until("SELECT count(*) = 0 FROM projections WHERE owner_pid = %s", before)
            first.send(signal.SIGCONT)
            assert first.ended() == 1
            pipeline.publish(mixed("afterwards"))
            pipeline.until_idle(second)
            assert second.stop() == 0
    pipeline.check()

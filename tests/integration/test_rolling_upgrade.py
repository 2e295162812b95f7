"""An additive migration runs while processes of the previous release continue, and are replaced one by one."""

from contextlib import suppress

import psycopg
import pytest
from psycopg import errors
from tests.support.killable import SINGLE_STATEMENT, STATEMENT_PER_TABLE, Plan, projector
from tests.support.pipeline import histories, own_pipeline  # noqa: F401  # a fixture
from tests.support.tiers import long

from frameledger_services.store import migration, schema
from frameledger_services.store.tables import metadata

NEXT_RELEASE = [
    *(f'ALTER TABLE "{table}" ADD COLUMN of_the_next_release text' for table in metadata.tables),
    "UPDATE frameledger_schema SET version_num = '9999'",
]
BACK_AGAIN = [
    *(f'ALTER TABLE "{table}" DROP COLUMN of_the_next_release' for table in metadata.tables),
    f"UPDATE frameledger_schema SET version_num = '{schema.REVISION}'",
]


NAMES = ["barge-in", "parallel-tools", "split-characters"]


@pytest.mark.parametrize(
    "small", [SINGLE_STATEMENT, long(STATEMENT_PER_TABLE)], ids=["one statement", "several"]
)
def test_processes_go_on_and_start_anew_over_a_migration_that_only_adds(pipeline, small):
    plan = Plan(small=small)
    with projector(pipeline.settings, plan) as running:
        pipeline.publish(histories("before", NAMES))
        pipeline.until_idle(running)
        migrate(pipeline, NEXT_RELEASE)
        pipeline.publish(histories("between", NAMES))
        pipeline.until_idle(running)
        assert running.stop() == 0
    with projector(pipeline.settings, plan) as started_later:
        pipeline.publish(histories("after", NAMES))
        pipeline.until_idle(started_later)
        assert started_later.stop() == 0
    # The added columns are dropped: the tables are compared with those of this release.
    migrate(pipeline, BACK_AGAIN)
    pipeline.check()


def migrate(pipeline, statements):
    """In one transaction, tried again after a deadlock with the projector, as `migration.migrate` does."""
    with psycopg.connect(pipeline.address) as connection:
        for _ in range(migration.TRIES):
            with suppress(errors.DeadlockDetected), connection.transaction():
                for statement in statements:
                    connection.execute(statement)
                return
    raise AssertionError("a deadlock in each try")

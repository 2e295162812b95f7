"""A migration that only adds is made while the processes of the release before go on, and are replaced one by one."""

from contextlib import suppress

import psycopg
import pytest
from psycopg import errors
from tests.support.killable import SINGLE_STATEMENT, STATEMENT_PER_TABLE, Plan, projector
from tests.support.road import histories, road_of_its_own  # noqa: F401  # a fixture
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
def test_processes_go_on_and_start_anew_over_a_migration_that_only_adds(road, small):
    plan = Plan(small=small)
    with projector(road.settings, plan) as running:
        road.publish(histories("before", NAMES))
        road.until_idle(running)
        migrate(road, NEXT_RELEASE)
        road.publish(histories("between", NAMES))
        road.until_idle(running)
        assert running.stop() == 0
    with projector(road.settings, plan) as started_later:
        road.publish(histories("after", NAMES))
        road.until_idle(started_later)
        assert started_later.stop() == 0
    # The added columns are dropped: the tables are compared with those of this release.
    migrate(road, BACK_AGAIN)
    road.check()


def migrate(road, statements):
    """In one transaction, tried again after a deadlock with the projector, as `migration.migrate` does."""
    with psycopg.connect(road.address) as connection:
        for _ in range(migration.TRIES):
            with suppress(errors.DeadlockDetected), connection.transaction():
                for statement in statements:
                    connection.execute(statement)
                return
    raise AssertionError("a deadlock in each try")

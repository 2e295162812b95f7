"""The timekeeper deletes old claims, and workers that stopped long ago."""

import psycopg
import pytest
from tests.support.timekeeping import limits, with_harness

from frameledger_services.timekeeper.sweep import purge


async def fill(harness):
    """Insert claims of three ages, one of them not finished, and workers that are alive, deregistered or dead."""
    await harness.lives("us", kind="timekeeper")
    for name in ("alive", "left", "died", "busy"):
        await harness.lives(name)
    await harness.execute(
        "UPDATE workers SET heartbeat_at = now() - interval '40 days', "
        "stopped_at = CASE worker_id WHEN 'left' THEN now() - interval '40 days' END "
        "WHERE worker_id IN ('left', 'died', 'busy')"
    )
    await harness.execute("UPDATE workers SET connected_at = now() - interval '1 hour'")
    await harness.execute(
        "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id, claimed_at, "
        "finished_at, finish) SELECT 'e' || days, 'run', 'ctx', days, 'r', 's', 'alive', "
        "now() - days * interval '1 day', now(), 'done' FROM unnest(ARRAY[1, 29, 31]) AS days"
    )
    await harness.execute(
        "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id) "
        "VALUES ('open', 'run', 'ctx', 1, 'r', 's', 'busy')"
    )


async def left(harness):
    cursor = await harness.connection.execute(
        "SELECT (SELECT array_agg(effect_id ORDER BY effect_id) FROM claims), "
        "(SELECT array_agg(worker_id ORDER BY worker_id) FROM workers)"
    )
    return await cursor.fetchone()


def test_old_claims_and_workers_long_gone_are_forgotten(database):
    async def test(harness):
        await fill(harness)
        await purge(harness.connection, limits(keep_claims_days=30, keep_workers_days=35), "us")
        claims, workers = await left(harness)
        assert claims == ["e1", "e29", "open"]
        # A worker with a claim is deleted once the claim is finished; here its run has ended.
        assert workers == ["alive", "busy", "us"]
        await purge(harness.connection, limits(keep_claims_days=30, keep_workers_days=35), "us")
        assert (await left(harness))[1] == ["alive", "us"]

    with_harness(database, test)


def test_however_many_claims_there_are_they_are_forgotten(database):
    async def test(harness):
        await harness.lives("us", kind="timekeeper")
        await harness.execute(
            "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id, claimed_at, "
            "finished_at, finish) SELECT 'e' || n, 'run', 'ctx', n, 'r', 's', 'us', "
            "now() - interval '31 days', now(), 'done' FROM generate_series(1, 25) AS n"
        )
        await purge(harness.connection, limits(keep_claims_days=30), "us", batch=10)
        assert (await left(harness))[0] is None

    with_harness(database, test)


@pytest.mark.regression("fault 151", "fault 312")
@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
def test_a_claim_that_cannot_be_deleted_yet_does_not_end_the_timekeeper(database, limit):
    async def test(harness):
        await fill(harness)
        await harness.execute(f"SET {limit} = '100ms'")
        async with await psycopg.AsyncConnection.connect(database) as somebody:
            await somebody.execute("SELECT FROM claims WHERE effect_id = 'e31' FOR UPDATE")
            await purge(harness.connection, limits(keep_claims_days=30), "us")
        await harness.execute(f"RESET {limit}")
        await purge(harness.connection, limits(keep_claims_days=30), "us")
        assert (await left(harness))[0] == ["e1", "e29", "open"]

    with_harness(database, test)


def test_what_is_kept_for_ever_is_kept(database):
    async def test(harness):
        await fill(harness)
        await purge(harness.connection, limits(), "us")
        assert await left(harness) == (
            ["e1", "e29", "e31", "open"],
            ["alive", "busy", "died", "left", "us"],
        )

    with_harness(database, test)

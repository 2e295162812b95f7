"""The timekeeper deletes old claims, and workers that stopped long ago."""

import psycopg
import pytest
from tests.support.timekeeping import at_desk, limits

from frameledger_services.timekeeper.sweep import purge


async def fill(desk):
    """Insert claims of three ages, one of them not finished, and workers that are alive, deregistered or dead."""
    await desk.lives("us", kind="timekeeper")
    for name in ("alive", "left", "died", "busy"):
        await desk.lives(name)
    await desk.execute(
        "UPDATE workers SET heartbeat_at = now() - interval '40 days', "
        "stopped_at = CASE worker_id WHEN 'left' THEN now() - interval '40 days' END "
        "WHERE worker_id IN ('left', 'died', 'busy')"
    )
    await desk.execute("UPDATE workers SET connected_at = now() - interval '1 hour'")
    await desk.execute(
        "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id, claimed_at, "
        "finished_at, finish) SELECT 'e' || days, 'run', 'ctx', days, 'r', 's', 'alive', "
        "now() - days * interval '1 day', now(), 'done' FROM unnest(ARRAY[1, 29, 31]) AS days"
    )
    await desk.execute(
        "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id) "
        "VALUES ('open', 'run', 'ctx', 1, 'r', 's', 'busy')"
    )


async def left(desk):
    cursor = await desk.connection.execute(
        "SELECT (SELECT array_agg(effect_id ORDER BY effect_id) FROM claims), "
        "(SELECT array_agg(worker_id ORDER BY worker_id) FROM workers)"
    )
    return await cursor.fetchone()


def test_old_claims_and_workers_long_gone_are_forgotten(database):
    async def test(desk):
        await fill(desk)
        await purge(desk.connection, limits(keep_claims_days=30, keep_workers_days=35), "us")
        claims, workers = await left(desk)
        assert claims == ["e1", "e29", "open"]
        # A worker with a claim is deleted once the claim is finished; here its run has ended.
        assert workers == ["alive", "busy", "us"]
        await purge(desk.connection, limits(keep_claims_days=30, keep_workers_days=35), "us")
        assert (await left(desk))[1] == ["alive", "us"]

    at_desk(database, test)


def test_however_many_claims_there_are_they_are_forgotten(database):
    async def test(desk):
        await desk.lives("us", kind="timekeeper")
        await desk.execute(
            "INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id, claimed_at, "
            "finished_at, finish) SELECT 'e' || n, 'run', 'ctx', n, 'r', 's', 'us', "
            "now() - interval '31 days', now(), 'done' FROM generate_series(1, 25) AS n"
        )
        await purge(desk.connection, limits(keep_claims_days=30), "us", batch=10)
        assert (await left(desk))[0] is None

    at_desk(database, test)


@pytest.mark.regression("fault 151", "fault 312")
@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
def test_a_claim_that_cannot_be_deleted_yet_does_not_end_the_timekeeper(database, limit):
    async def test(desk):
        await fill(desk)
        await desk.execute(f"SET {limit} = '100ms'")
        async with await psycopg.AsyncConnection.connect(database) as somebody:
            await somebody.execute("SELECT FROM claims WHERE effect_id = 'e31' FOR UPDATE")
            await purge(desk.connection, limits(keep_claims_days=30), "us")
        await desk.execute(f"RESET {limit}")
        await purge(desk.connection, limits(keep_claims_days=30), "us")
        assert (await left(desk))[0] == ["e1", "e29", "open"]

    at_desk(database, test)


def test_what_is_kept_for_ever_is_kept(database):
    async def test(desk):
        await fill(desk)
        await purge(desk.connection, limits(), "us")
        assert await left(desk) == (
            ["e1", "e29", "e31", "open"],
            ["alive", "busy", "died", "left", "us"],
        )

    at_desk(database, test)

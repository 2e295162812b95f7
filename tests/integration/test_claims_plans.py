"""The statements of `claims` need only a worker's privileges, and read by indexes."""

import psycopg
import pytest
from tests.support.claim_workers import FUNCTIONS, run, workers
from tests.support.plans import nodes

from frameledger_services import claims

FEW_ROWS = ("projections", "pg_database")
"""Tables with a row for each partition, and for each database of the server, whatever these contain."""


def test_a_workers_role_may_do_all_of_this_and_nothing_else(scene):
    async def scenario():
        (effect,) = await scene.ask("a", settings={"model": "m"})
        (call,) = await scene.call("b", "f")
        async with workers(scene.address, {"serves_all": True}, FUNCTIONS | {"serves_all": True}) as (
            one,
            of_calls,
        ):
            for worker in (one, of_calls):
                await worker.connection.execute("SET ROLE frameledger_worker")
                await worker.heartbeat([effect.id])
                await claims.reconnected(worker.connection, worker.id)
                await claims.update_registration(worker.connection, worker.offer)
                await worker.release_all_but([])
                await worker.finish_over()
            assert len((await one.claim_runs([effect])).claimed) == 1
            assert len((await of_calls.claim_calls([call])).claimed) == 1
            await one.next_attempt(effect.id, 1)
            await one.release([effect.id])
            assert len(await one.take_over_runs(1)) == 1
            await of_calls.release([call.id])
            assert len(await of_calls.take_over_calls(1)) == 1
            await one.finish([effect.id])
            await one.unclaimed_runs(1)
            await of_calls.unclaimed_calls(1)
            await claims.purge(one.connection, claims_days=30, workers_days=30)
            await claims.reap_workers(one.connection)
            await claims.leave(one.connection, one.id)
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await one.connection.execute("DELETE FROM runs")

    run(scenario())


def test_every_statement_reads_by_indexes(scene):
    """With many claims, dead workers and runs, no statement that is executed every second reads a whole table."""

    class Explaining:
        """A connection that explains statements instead of executing them."""

        def __init__(self, connection):
            self.connection = connection
            self.plans = {}

        async def execute(self, statement, parameters=None):
            cursor = await self.connection.execute(b"EXPLAIN (FORMAT JSON) " + statement.encode(), parameters)
            self.plans[statement] = (await cursor.fetchone())[0][0]["Plan"]
            return await self.connection.execute("SELECT false, NULL, NULL, NULL WHERE false")

    async def scenario():
        (effect,) = await scene.ask("a")
        (call,) = await scene.call("b", "f")
        async with workers(scene.address, {}) as (one,):
            await one.connection.execute(MANY)
            await one.connection.execute("ANALYZE")
            explaining = Explaining(one.connection)
            ids = {f"e{number}": "token" for number in range(100)}
            await claims.claim_runs(explaining, one.id, [effect] * 10, 5)
            await claims.claim_calls(explaining, one.id, [call] * 10, 5)
            await claims.take_over_runs(explaining, one.id, 5)
            await claims.take_over_calls(explaining, one.id, 5)
            await claims.finish_over(explaining, one.id)
            await claims.unclaimed_runs(explaining, one.id, 5)
            await claims.unclaimed_calls(explaining, one.id, 5)
            await claims.finish(explaining, one.id, ids)
            await claims.release(explaining, one.id, ids)
            await claims.release_all_but(explaining, one.id, ids)
            with pytest.raises(AssertionError):
                await claims.heartbeat(explaining, one.id, ids)
        read_whole = {
            (node["Relation Name"], statement)
            for statement, plan in explaining.plans.items()
            for node in nodes(plan)
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in FEW_ROWS
        }
        assert len(explaining.plans) == 11
        assert read_whole == set()

    run(scenario())


MANY = """
    INSERT INTO workers (worker_id, kind, service, host, pid, lease_secs, slots, stopped_at, offers)
    SELECT 'w' || n, 'inference', 's', 'h', 1, 5, 1, CASE WHEN n % 50 > 0 OR n > 500 THEN now() END, '{}'
    FROM generate_series(1, 20000) AS n;
    INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id, finished_at, finish)
    SELECT 'e' || n, 'run', 'c' || n % 5000, n, 'r' || n, 's', 'w' || n % 500,
        CASE WHEN n % 100 > 0 THEN now() END, CASE WHEN n % 100 > 0 THEN 'done' END
    FROM generate_series(1, 50000) AS n;
    INSERT INTO runs (context_id, run_id, requested_version, opened_version, requested_at, opened_at, trigger, status)
    SELECT 'c' || n % 5000, 'r' || n, n, n, now(), now() - n * interval '1 second', 'x',
        CASE WHEN n % 100 = 0 THEN 'open' ELSE 'ended' END
    FROM generate_series(1, 50000) AS n;
    INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, chain, state)
    SELECT 'c' || n, 1, 1, now(), now(), 1, sha256(''), '{}' FROM generate_series(0, 4999) AS n;
    INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, chain, payload)
    SELECT 'c' || n, 1, gen_random_uuid(), now(), n, n % 4, 'x', 'applied', sha256(''), '{}'
    FROM generate_series(0, 4999) AS n;
    INSERT INTO projections (projection, topic, partition) SELECT 'contexts', 't', n FROM generate_series(4, 999) AS n;
    INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, dispatched_at, tool_call_id,
        function_name, status, arguments)
    SELECT 'c' || n % 5000, n, 0, now() - n * interval '1 second', now() - n * interval '1 second', 't' || n, 'f',
        CASE WHEN n % 100 = 0 THEN 'dispatched' ELSE 'done' END, '{}'
    FROM generate_series(1, 50000) AS n
"""

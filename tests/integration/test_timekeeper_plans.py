"""The rows that a sweep reads: only those of open work, however many have ended."""

import asyncio
from dataclasses import replace

import psycopg
import pytest
from tests.support.databases import made
from tests.support.timekeeping import FAR, PAST, limits

from frameledger_services import claims
from frameledger_services.claims import overdue_calls, overdue_runs, timekeeper_claims
from frameledger_services.store import overdue, work_to_do
from frameledger_services.timekeeper import service
from frameledger_services.timekeeper.sweep import Sweeper, sweep

ALL = range(64)
OPEN = 20
"""Number of contexts that have one of each kind of open work."""

# Work that is over: 2,000 contexts with 40 frames each, and for every eight frames a run and a call with their claims.
# Then open work in a few contexts.
FILL = f"""
INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, chain, state)
SELECT 'context-' || n, 40, 40, now(), now(), 1, sha256('x'), '{{}}' FROM generate_series(1, 2000) AS n;

INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, chain, payload)
SELECT context_id, v, gen_random_uuid(), timestamptz '2026-01-01' + v * interval '1 s', v, 0, 'LLMTextFrame', 'applied',
    sha256('x'), '{{}}'
FROM contexts CROSS JOIN LATERAL generate_series(1, 40) AS v;

INSERT INTO runs (context_id, run_id, requested_version, opened_version, closed_version, requested_at, opened_at,
    trigger, status)
SELECT context_id, format('run-%s', v), v, v, v + 2, timestamptz '2026-01-01', timestamptz '2026-01-01', 'LLMRunFrame',
    'ended'
FROM contexts CROSS JOIN LATERAL generate_series(4, 40, 8) AS v;

INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, tool_call_id, function_name, status,
    arguments, dispatched_version)
SELECT context_id, opened_version, 0, requested_at, 'call', 'f', 'done', '{{}}', opened_version FROM runs;

INSERT INTO claims (effect_id, kind, context_id, version, run_id, service, worker_id, finished_at, finish)
SELECT context_id || run_id, 'run', context_id, opened_version, run_id, 's', 'w', now(), 'done' FROM runs;

INSERT INTO claims (effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, service, worker_id,
    finished_at, finish)
SELECT context_id || 'call' || requested_version, 'call', context_id, dispatched_version, requested_version, 0,
    tool_call_id, 's', 'w', now(), 'done'
FROM tool_calls;

UPDATE contexts SET turn_opened_version = 30, turn_waits = false, bot_since_version = 30
WHERE context_id IN (SELECT 'context-' || n FROM generate_series(1, {OPEN}) AS n);

UPDATE runs SET status = 'open', closed_version = NULL, opened_at = requested_at
WHERE run_id = 'run-36' AND context_id IN (SELECT 'context-' || n FROM generate_series(1, {OPEN}) AS n);

UPDATE tool_calls SET status = 'waiting', started_version = dispatched_version
WHERE requested_version = 28 AND context_id IN (SELECT 'context-' || n FROM generate_series(1, {OPEN}) AS n);

UPDATE tool_calls
SET status = (ARRAY['dispatched', 'running', 'waiting'])[1 + length(context_id) % 3], waiting_deadline = requested_at
WHERE requested_version = 36 AND context_id IN (SELECT 'context-' || n FROM generate_series(1, {OPEN}) AS n);
"""

RULES = {
    "runs_unclaimed": lambda connection, limit: overdue_runs.unclaimed(connection, limit, ALL),
    "runs_silent": lambda connection, limit: overdue_runs.silent(connection, limit, ALL),
    "calls_overdue": lambda connection, limit: overdue_calls.past_deadline(connection, limit, 0.0, ALL),
    "calls_abandoned": lambda connection, limit: overdue_calls.abandoned(connection, limit, ALL),
    "calls_lost": lambda connection, limit: overdue_calls.lost(connection, limit, ALL),
    "calls_of_lost_queues": lambda connection, limit: overdue_calls.queued_at_lost(connection, limit, ALL),
    "waiting_calls_overdue": lambda connection, limit: overdue_calls.waiting(connection, limit, ALL),
    "calls_left_by_clients": lambda connection, limit: overdue_calls.left_by_clients(connection, limit, ALL),
    "turns_overdue": lambda connection, limit: overdue.turns(connection, limit, limit, ALL),
    "bots_overdue": lambda connection, limit: overdue.speeches(connection, limit, ALL),
    "unstarted": lambda connection, limit: timekeeper_claims.unstarted(connection, limit, limit, ALL),
    "held": lambda connection, _: timekeeper_claims.held(connection, "w", ALL),
    "finish_settled": lambda connection, _: timekeeper_claims.finish_settled(connection, "w"),
}
MAX_ROWS = 30 * OPEN
"""For each piece of open work: its context, a few frames, its run, its claim and its worker."""


@pytest.fixture(scope="module")
def filled(database_server, migrated_template):
    with made(database_server, template=migrated_template) as (_, address):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(FILL)
            connection.execute("VACUUM ANALYZE")
        yield address


@pytest.mark.parametrize("limit", [PAST, FAR])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_reads_what_is_open_and_nothing_that_is_over(filled, rule, limit):
    scanned, fetched = asyncio.run(read_by(filled, lambda connection: RULES[rule](connection, limit)))
    assert scanned == set()
    assert fetched <= MAX_ROWS


def test_what_there_is_to_do_is_counted_by_what_is_open(filled):
    scanned, fetched = asyncio.run(read_by(filled, work_to_do.count))
    # The outbox may be scanned: any first rows of it are enough.
    assert scanned <= {"outbox"}
    assert fetched <= MAX_ROWS


QUEUE = 400
"""Number of unsettled calls of one announcement."""

QUEUED = f"""
INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, tool_call_id, function_name, status,
    arguments, attempt, worker, started_version)
SELECT 'context-2000', 39, n, timestamptz '2026-01-01', 'queued-' || n, 'f',
    CASE n WHEN 0 THEN 'running' ELSE 'announced' END, '{{}}', 0,
    CASE n WHEN 0 THEN 'program' END, CASE n WHEN 0 THEN 39 END
FROM generate_series(0, {QUEUE} - 1) AS n
"""


@pytest.mark.regression("fault 150")
@pytest.mark.parametrize("rule", ["calls_overdue", "calls_of_lost_queues"])
def test_each_call_of_a_long_queue_is_read_a_few_times_and_not_once_for_each_other(filled, rule):
    scanned, fetched = asyncio.run(read_by(filled, lambda connection: RULES[rule](connection, PAST), QUEUED))
    assert scanned == set()
    assert fetched <= MAX_ROWS + 10 * QUEUE


RUNNING = f"""
INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, tool_call_id, function_name, status,
    arguments, dispatched_version, dispatched_at, started_version, started_at, attempt, worker)
SELECT 'context-2000', 39, n, timestamptz '2026-01-01', 'running-' || n, 'f', 'running', '{{}}', 39,
    timestamptz '2026-01-01', 40, timestamptz '2026-01-01', 1, 'w'
FROM generate_series(1, {QUEUE}) AS n;
INSERT INTO claims (effect_id, kind, context_id, version, requested_version, ordinal, tool_call_id, service, worker_id)
SELECT 'running-' || n, 'call', 'context-2000', 39, 39, n, 'running-' || n, 's', 'w'
FROM generate_series(1, {QUEUE}) AS n
"""


@pytest.mark.regression("fault 152")
@pytest.mark.parametrize("rule", ["calls_lost", "unstarted"])
def test_the_claim_of_each_of_many_calls_is_found_without_reading_those_of_the_others(filled, rule):
    scanned, fetched = asyncio.run(read_by(filled, lambda connection: RULES[rule](connection, PAST), RUNNING))
    assert scanned == set()
    assert fetched <= MAX_ROWS + 10 * QUEUE


@pytest.mark.regression("fault 152")
def test_a_worker_that_looks_for_unclaimed_calls_finds_the_claim_of_each(filled):
    async def unclaimed(connection):
        await claims.register(connection, claims.Registration("x", "s", "functions", "h", 1, 60.0, 1, ("f",)))
        assert not [
            one
            for one in await claims.unclaimed_calls(connection, "x", 1000)
            if "running" in one.tool_call_id
        ]

    _, fetched = asyncio.run(read_by(filled, unclaimed, RUNNING))
    assert fetched <= MAX_ROWS + 10 * QUEUE


async def read_by(address, statements, filling=""):
    """Returns the tables that these statements scan, and how many rows they fetch by index, in a timekeeper's
    session."""
    async with (
        await psycopg.AsyncConnection.connect(address) as connection,
        connection.transaction(force_rollback=True),
    ):
        await connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        for setting, value in service.SESSION.items():
            await connection.execute(f"SET LOCAL {setting} = '{value}'")
        await connection.execute(filling)
        before = await counted(connection)
        await statements(connection)
        after = await counted(connection)
    scanned = {table for table, (scans, _) in after.items() if scans > before.get(table, (0, 0))[0]}
    fetched = sum(rows for _, rows in after.values()) - sum(rows for _, rows in before.values())
    return scanned, fetched


def test_a_sweep_finds_what_is_open_among_all_that_has_ended(filled):
    async def found():
        async with await psycopg.AsyncConnection.connect(filled, autocommit=True) as connection:
            offer = claims.Registration("us", "timekeeper", "timekeeper", "host", 1, 60.0, 1)
            await claims.register(connection, offer)
            on = limits(run_silent=PAST, call=PAST, waiting_calls=True, client_call=PAST)
            on = replace(on, user_silent=PAST, bot_silent=PAST)
            return await sweep(connection, on, Sweeper("us", "timekeeper", False), ALL)

    rules = [one.rule for one in asyncio.run(found())]
    assert {rule: rules.count(rule) for rule in OF_EACH} == dict.fromkeys(OF_EACH, OPEN)
    assert rules.count("call_overdue") + rules.count("waiting_overdue") == OPEN


OF_EACH = ("run_silent", "user_stop", "bot_stop", "call_left")


async def counted(connection):
    """Returns sequential scans and rows fetched by index, by table, in this transaction."""
    cursor = await connection.execute(
        "SELECT relname::text, seq_scan, coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables"
    )
    return {table: (scans, rows) for table, scans, rows in await cursor.fetchall()}

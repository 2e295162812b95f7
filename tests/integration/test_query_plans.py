"""What queries read: counted by the database itself, in a database that holds enough for the planner to choose.

A plan is judged by what it touched: no table from end to end, and no more rows than the answer needs.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg import AsyncConnection
from tests.support.batches import value_of
from tests.support.databases import made

from frameledger_services.claims import held
from frameledger_services.store import (
    answered_requests,
    client_requests,
    context_json,
    contexts,
    conversations,
    following,
    listing,
    spending,
)
from frameledger_services.store.listing import Selection
from frameledger_services.store.newest_requests import ASKING, SPEAKING
from frameledger_services.store.valid_to import FOR_EVER

CONTEXTS, FRAMES, MESSAGES = 2_000, 40, 10
LONG, LONG_FRAMES, LONG_MESSAGES = "long", 20_000, 5_000
ONE = "context-1000"

# Frames form chains of twenty, each caused by the one before. Every fourth frame of a conversation requests a run, and
# one message in ten was replaced, like messages of tools.
FILL = f"""
CREATE TEMPORARY TABLE made AS
SELECT 'context-' || n AS context_id, {FRAMES} AS frames, {MESSAGES} AS messages
FROM generate_series(1, {CONTEXTS}) AS n
UNION ALL SELECT '{LONG}', {LONG_FRAMES}, {LONG_MESSAGES};

INSERT INTO frames (context_id, version, frame_id, causation_id, logged_at, "offset", partition, type, outcome, chain,
    payload)
SELECT context_id, v, md5(context_id || v)::uuid, CASE WHEN v % 20 > 0 THEN md5(context_id || v - 1)::uuid END,
    timestamptz '2026-01-01' + v * interval '1 s', v, 0,
    CASE WHEN v % 20 = 0 THEN 'InterruptionFrame' ELSE 'LLMTextFrame' END, 'applied', sha256('x'),
    format('{{"type":"LLMTextFrame","text":"%s"}}', repeat('x', 200))::json
FROM made CROSS JOIN LATERAL generate_series(1, frames) AS v;

INSERT INTO messages (context_id, era, position, valid_from, valid_to, role, text, message)
SELECT context_id, 1, p, p * 4, CASE WHEN p % 10 = 0 THEN p * 4 + 1 ELSE {FOR_EVER} END,
    CASE p % 2 WHEN 0 THEN 'assistant' ELSE 'user' END, repeat('word ', 20),
    format('{{"role":"user","content":"%s"}}', repeat('word ', 20))::json
FROM made CROSS JOIN LATERAL generate_series(1, messages) AS p;

INSERT INTO messages (context_id, era, position, valid_from, role, text, message)
SELECT context_id, era, position, valid_to, role, text, message FROM messages WHERE valid_to < {FOR_EVER};

INSERT INTO context_settings (context_id, name, valid_from, value)
SELECT context_id, name, v, '[]' FROM made CROSS JOIN (VALUES ('tools'), ('settings')) AS names (name)
CROSS JOIN LATERAL generate_series(1, frames, 20) AS v;

INSERT INTO eras (context_id, era, valid_from)
SELECT 'context-' || n, era, 1000 + era FROM generate_series(1, {CONTEXTS}) AS n, generate_series(2, 5) AS era;

INSERT INTO runs (context_id, run_id, requested_version, opened_version, closed_version, requested_at, opened_at,
    started_at, heard_version, started_version, input_tokens, model, trigger, status)
SELECT context_id, format('run-%s', v), v, v, v + 2, timestamptz '2026-01-01' + v * interval '1 s',
    timestamptz '2026-01-01' + v * interval '1 s', timestamptz '2026-01-01' + v * interval '1 s',
    v - 1, v - 4, 10, 'm', 'LLMRunFrame',
    CASE WHEN v = 36 AND context_id LIKE '%99' THEN 'open' ELSE 'ended' END
FROM made CROSS JOIN LATERAL generate_series(4, frames, 8) AS v;

UPDATE messages SET run_id = format('run-%s', valid_from - 4) WHERE role = 'assistant';

INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, started_at, settled_at, tool_call_id,
    function_name, arguments, status)
SELECT context_id, v, 0, timestamptz '2026-01-01' + v * interval '1 s', timestamptz '2026-01-02',
    timestamptz '2026-01-03', 'call-' || v, 'look', '{{}}',
    CASE WHEN v = 37 AND context_id LIKE '%99' THEN 'waiting' WHEN v = 37 AND context_id LIKE '%98' THEN 'ambiguous'
        WHEN v = 37 AND context_id LIKE '%97' THEN 'running' ELSE 'done' END
FROM made CROSS JOIN LATERAL generate_series(5, frames, 8) AS v;

INSERT INTO workers (worker_id, kind, service, host, pid, lease_secs, slots, offers, heartbeat_at, stopped_at)
SELECT 'worker-' || n, 'functions', 'tools', 'here', n, 86400, 4, '{{"functions": [{{"name": "look"}}]}}',
    clock_timestamp(), CASE WHEN n % 1000 > 0 THEN now() END
FROM generate_series(1, 5000) AS n;

INSERT INTO claims (effect_id, version, kind, context_id, run_id, service, worker_id, claimed_at, finished_at, finish)
SELECT 'effect-' || n, n, 'run', 'context-' || n % 2000, 'run-' || n, 'tools', 'worker-' || n % 5000,
    timestamptz '2026-01-01' + n * interval '1 s',
    CASE WHEN n % 100 > 0 THEN now() END, CASE WHEN n % 100 > 0 THEN 'done' END
FROM generate_series(1, 20000) AS n;

INSERT INTO contexts (context_id, version, state_version, started_at, last_at, fold_version, chain, state,
    parked_version, parked_at, parked_error, turn_opened_version, turn_waits, origin, experiment)
SELECT context_id, frames, frames, timestamptz '2026-01-01' + row_number() OVER () * interval '1 min', now(), 1,
    sha256('x'), json_build_object('filler', repeat(md5(context_id), 30)),
    CASE WHEN parked THEN 7 END, CASE WHEN parked THEN now() END, CASE WHEN parked THEN 'x' END,
    CASE WHEN parked THEN 5 END, CASE WHEN parked THEN false END,
    CASE WHEN parked THEN json_build_object('context_id', 'context-' || length(context_id), 'version', 3) END,
    context_id LIKE '%96'
FROM (SELECT *, context_id LIKE '%99' AS parked FROM made) AS made;

INSERT INTO outbox (topic, partition, "offset", ordinal, kind, to_topic, headers)
SELECT 'llm.frames', n % 64, n, 0, 'effect', 'llm.inference', '[]' FROM generate_series(1, 20000) AS n;

INSERT INTO rejected_frames (topic, partition, "offset", code, error, context_id, value, headers, retried_at)
SELECT 'llm.frames', n % 64, n, 'not_json', 'x', CASE WHEN n % 10 > 0 THEN 'context-' || n % 2000 END, 'x', '[]',
    CASE WHEN n % 1000 > 0 THEN now() END
FROM generate_series(1, 20000) AS n;

INSERT INTO erasures (context_id, version, frame_count, why, chain)
SELECT 'gone-' || n, n, n, 'asked', sha256('x') FROM generate_series(1, 2000) AS n;
"""


@pytest.fixture(scope="module")
def filled(database_server, migrated_template) -> Iterator[psycopg.Connection]:
    with (
        made(database_server, template=migrated_template) as (_, address),
        psycopg.connect(address, autocommit=True) as connection,
    ):
        connection.execute(FILL)
        connection.execute("VACUUM ANALYZE")
        yield connection


@asynccontextmanager
async def counting(connection: psycopg.Connection) -> AsyncIterator[AsyncConnection]:
    """Yields an asynchronous connection to the same database, for one transaction in which all reads are counted."""
    address = f"{connection.info.dsn} password={connection.info.password}"
    async with await AsyncConnection.connect(address) as asynchronous:
        # The reads of a parallel worker are counted elsewhere.
        await asynchronous.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        yield asynchronous


def reads(
    connection: psycopg.Connection, query: str, parameters: Mapping[str, Any] | None = None
) -> tuple[set[str], int]:
    """Returns our tables that the query scanned, and how many rows it fetched by index."""
    with connection.transaction(force_rollback=True):
        # The reads of a parallel worker are counted elsewhere.
        connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
        before = counted(connection)
        assert connection.execute(query, parameters).fetchall()
        after = counted(connection)
    scanned = {table for table, (scans, _) in after.items() if scans > before.get(table, (0, 0))[0]}
    fetched = sum(rows for _, rows in after.values()) - sum(rows for _, rows in before.values())
    assert scanned or fetched, "nothing was counted"
    return scanned, fetched


def counted(connection: psycopg.Connection) -> dict[str, tuple[int, int]]:
    """Returns sequential scans and rows fetched by index, by table, that this session has counted and not published."""
    return {table: (scans, rows) for table, scans, rows in connection.execute(COUNTED)}


COUNTED = "SELECT relname::text, seq_scan, coalesce(idx_tup_fetch, 0)::bigint FROM pg_stat_xact_user_tables"


@pytest.mark.parametrize(
    ("query", "most_rows"),
    [
        (f"SELECT context_at('{ONE}')", 20),
        (f"SELECT context_at('{LONG}')", LONG_MESSAGES * 1.1 + 10),
        (f"SELECT context_at('{LONG}', 100)", 40),
        (f"SELECT context_at('{ONE}', 30)", 20),
        (f"SELECT context_at_time('{LONG}', '2026-01-01 00:01')", 40),
        (f"SELECT context_diff('{ONE}', 10, 40)", 40),
        (f"SELECT context_diff('{LONG}', 90, 100)", 80),
        (f"SELECT count(*) FROM messages_at('{ONE}', 40)", 12),
        (f"SELECT * FROM verify_chain('{ONE}')", 4 * FRAMES),
        (f"SELECT * FROM transcript WHERE context_id = '{ONE}'", 20),
        (f"SELECT * FROM timeline WHERE context_id = '{ONE}'", FRAMES),
        (f"SELECT * FROM causes('{LONG}', 19999)", 20),
        (f"SELECT * FROM timeline WHERE context_id = '{LONG}' AND version > 19990", 10),
        (f"SELECT * FROM timeline_of('{ONE}')", 100),
        (f"SELECT * FROM timeline_of('{ONE}', 31, 40)", 50),
        (f"SELECT explain_message('{ONE}', 4)", 80),
        (f"SELECT explain_message('{LONG}', 4000)", 1_100),
        (f"SELECT explain_message('{LONG}', 4001)", 100),
        (f"SELECT * FROM turns WHERE context_id = '{ONE}'", 60),
        (f"SELECT * FROM interruptions WHERE context_id = '{ONE}'", 30),
        (f"SELECT * FROM conversations WHERE context_id = '{ONE}'", 5),
        ("SELECT * FROM conversations LIMIT 10", 30),
        ("SELECT * FROM parked", 40),
        ("SELECT * FROM forks WHERE forked_from = 'context-11'", 12),
        ("SELECT * FROM experiments", 25),
        (f"SELECT * FROM run_history WHERE context_id = '{ONE}'", 40),
        (
            f"SELECT * FROM run_history WHERE context_id = '{LONG}'",
            LONG_MESSAGES * 1.1 + LONG_FRAMES / 4 + 10,
        ),
        (f"SELECT * FROM token_usage WHERE context_id = '{ONE}'", 10),
        (f"SELECT * FROM latency WHERE context_id = '{ONE}'", 12),
        (f"SELECT * FROM tool_call_history WHERE context_id = '{ONE}'", 10),
        ("SELECT * FROM waiting", 25),
        ("SELECT * FROM ambiguous_calls", 25),
        ("SELECT * FROM tools_on_offer", 10),
        ("SELECT * FROM services", 220),
        # Queries of a timekeeper, and of workers that take over.
        ("SELECT * FROM contexts WHERE turn_opened_version IS NOT NULL OR bot_since_version IS NOT NULL", 25),
        ("SELECT * FROM runs WHERE status = 'open' ORDER BY opened_at LIMIT 10", 10),
        (
            "SELECT * FROM tool_calls WHERE status IN ('announced', 'dispatched', 'running') "
            "ORDER BY requested_at LIMIT 10",
            10,
        ),
        ("SELECT * FROM tool_calls WHERE status = 'waiting' ORDER BY waiting_deadline LIMIT 10", 10),
        ("SELECT * FROM claims WHERE worker_id = 'worker-100' AND finished_at IS NULL", 10),
        (f"SELECT * FROM claims WHERE context_id = '{ONE}' AND version < 9999", 10),
        ("SELECT * FROM claims WHERE claimed_at < '2026-01-01 00:00:09Z'", 10),
        (
            """SELECT * FROM outbox WHERE topic = 'llm.frames' AND partition = 7 ORDER BY "offset" LIMIT 10""",
            10,
        ),
        # Queries of delete_conversation() and `doctor` about dead letters.
        ("DELETE FROM rejected_frames WHERE context_id = 'context-1001' RETURNING context_id", 20),
        ("SELECT count(*) FROM rejected_frames WHERE retried_at IS NULL", 25),
    ],
)
def test_a_question_about_one_conversation_reads_nothing_of_the_others(filled, query, most_rows):
    scanned, fetched = reads(filled, query)
    assert scanned == set()
    assert fetched <= most_rows


@pytest.mark.regression("fault 222")
@pytest.mark.parametrize(
    ("query", "most_rows"),
    [
        ("SELECT * FROM interruptions LIMIT 10", 100),
        (f"SELECT * FROM interruptions WHERE context_id IN ('{ONE}', 'context-7')", 60),
        # Reads each run of the conversation once.
        (
            f"SELECT * FROM interruptions WHERE context_id = '{LONG}'",
            LONG_FRAMES / 20 * 3 + LONG_FRAMES / 8 + 10,
        ),
    ],
)
def test_some_interruptions_are_shown_without_the_runs_of_all_conversations(filled, query, most_rows):
    scanned, fetched = reads(filled, query)
    assert scanned == set()
    assert fetched <= most_rows


@pytest.mark.regression("fault 245")
@pytest.mark.parametrize(
    ("query", "most_rows"),
    [
        ("SELECT * FROM run_history LIMIT 10", 60),
        (f"SELECT * FROM run_history WHERE context_id IN ('{ONE}', 'context-7')", 60),
        ("SELECT * FROM turns LIMIT 10", 100),
        (f"SELECT * FROM turns WHERE context_id IN ('{ONE}', 'context-7')", 100),
        # Each turn finds its run by its version, not among all runs of the conversation.
        (f"SELECT * FROM turns WHERE context_id = '{LONG}'", 3 * LONG_MESSAGES),
    ],
)
def test_some_runs_and_turns_are_shown_without_the_messages_of_all_conversations(filled, query, most_rows):
    scanned, fetched = reads(filled, query)
    assert scanned == set()
    assert fetched <= most_rows


@pytest.mark.regression("fault 249")
@pytest.mark.parametrize(
    ("query", "most_rows"),
    [
        (
            "SELECT * FROM timeline WHERE context_id = '{LONG}' "
            "AND version > (SELECT version - 10 FROM contexts WHERE context_id = '{LONG}')",
            11,
        ),
        (
            "SELECT * FROM facts_messages WHERE context_id = '{LONG}' ORDER BY era DESC, position DESC LIMIT 10",
            20,
        ),
        (
            "SELECT * FROM facts_turns WHERE context_id = '{LONG}' ORDER BY era DESC, position DESC LIMIT 10",
            150,
        ),
        (
            "SELECT * FROM facts_runs WHERE context_id = '{LONG}' ORDER BY requested_version DESC LIMIT 10",
            100,
        ),
        (
            "SELECT * FROM facts_calls WHERE context_id = '{LONG}' ORDER BY requested_version DESC LIMIT 10",
            10,
        ),
    ],
    ids=["frames", "messages", "turns", "runs", "calls"],
)
def test_the_end_of_a_long_conversation_is_read_without_what_came_before(filled, query, most_rows):
    scanned, fetched = reads(filled, query.replace("{LONG}", LONG))
    # Prices are a few.
    assert scanned <= {"prices"}
    assert fetched <= most_rows


@pytest.mark.regression("fault 249")
def test_the_turns_of_a_long_conversation_are_found_without_the_eras_of_all(filled):
    scanned, _ = reads(filled, f"SELECT * FROM facts_turns WHERE context_id = '{LONG}'")
    assert "eras" not in scanned


def test_every_view_that_names_conversations_reads_one_of_them_if_one_is_asked_for(filled):
    """This checks all views, including future ones."""
    views = views_of_conversations(filled)
    assert len(views) >= 19
    too_much = {}
    for view in views:
        with filled.transaction(force_rollback=True):
            filled.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            before = counted(filled)
            filled.execute(f"SELECT * FROM {view} WHERE context_id = '{ONE}'")
            after = counted(filled)
        scanned = {table for table, (scans, _) in after.items() if scans > before.get(table, (0, 0))[0]}
        fetched = sum(rows for _, rows in after.values()) - sum(rows for _, rows in before.values())
        # There are few prices. A view of rare rows may read all of them.
        if scanned - {"prices"} or fetched > 6 * FRAMES:
            too_much[view] = scanned, fetched
    assert too_much == {}


def views_of_conversations(connection: psycopg.Connection) -> list[str]:
    """All views that name conversations."""
    found = connection.execute(
        "SELECT viewname::text FROM pg_views INNER JOIN information_schema.columns ON table_name = viewname "
        "WHERE schemaname = 'public' AND column_name = 'context_id' ORDER BY viewname"
    )
    return [view for (view,) in found]


@pytest.mark.regression("fault 255")
def test_no_view_looks_through_a_long_conversation_for_each_row_of_it(filled):
    """What an index finds and leaves out counts as no row, but its pages are read."""
    runs, too_much = LONG_FRAMES / 8, {}
    for view in views_of_conversations(filled):
        with filled.transaction(force_rollback=True):
            filled.execute("SET LOCAL max_parallel_workers_per_gather = 0")
            explain = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)"
            query = f"{explain} SELECT * FROM {view} WHERE context_id = '{LONG}'"
            [plan] = value_of(filled, query)
        pages = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        # The most are those of a run or a turn, with six places of its own to look at.
        if pages > 25 * runs:
            too_much[view] = pages / runs
    assert too_much == {}


@pytest.mark.parametrize("version", [None, FRAMES])
def test_a_context_is_read_once_whatever_the_planner_expects_of_a_conversation(filled, version):
    """The generic plan of a prepared statement expects a short conversation, and is used for long ones too."""

    class Prepared:
        """A connection that executes statements with a generic plan."""

        async def execute(self, query, parameters):
            return self.Answer(filled.execute(query, parameters, prepare=True).fetchone())

        class Answer(NamedTuple):
            row: tuple

            async def fetchone(self):
                return self.row

    with filled.transaction(force_rollback=True):
        filled.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        for table in ("messages", "tool_calls"):
            # Statistics as if each row belonged to another conversation.
            filled.execute(f"ALTER TABLE {table} ALTER context_id SET (n_distinct = -1)")
            filled.execute(f"ANALYZE {table}")
        before = counted(filled)
        found = asyncio.run(contexts.context(Prepared(), ONE, version))
        after = counted(filled)
    assert len(found.context.messages) == MESSAGES
    assert {table for table, (scans, _) in after.items() if scans > before.get(table, (0, 0))[0]} == set()
    fetched = sum(rows for _, rows in after.values()) - sum(rows for _, rows in before.values())
    assert fetched <= MESSAGES * 1.1 + FRAMES / 8 + 10, "its messages, its calls, its settings"


OLD_CALLS = f"""
INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, started_version, settled_version,
    tool_call_id, function_name, arguments, status)
SELECT '{ONE}', 1000 + n, 0, now(), 1000 + n, 1000 + n, 'old-' || n, 'look', '{{}}', 'done'
FROM generate_series(1, 3000) AS n;
"""


@pytest.mark.regression("fault 21")
@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("analyzed", [False, True])
def test_a_context_reads_no_calls_that_it_does_not_show(filled, plan, analyzed):
    """A conversation keeps the calls of all its eras."""
    asked = {"ids": [ONE], "versions": [None], "times": [None]}
    with filled.transaction(force_rollback=True):
        filled.execute(f"SET LOCAL plan_cache_mode = {plan}")
        filled.execute(OLD_CALLS)
        if analyzed:
            filled.execute("ANALYZE tool_calls")
        for query, parameters in (
            (context_json.CONTEXTS, asked),
            (contexts.CONTEXT, {"id": ONE, "version": None}),
        ):
            scanned, fetched = reads(filled, query, parameters)
            assert scanned == set()
            assert fetched <= MESSAGES * 1.1 + FRAMES / 8 + 10


@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
def test_who_follows_many_conversations_reads_what_is_behind_each_cursor(filled, plan):
    names = [f"context-{number}" for number in range(1, 101)]
    asked = {
        "topic": "llm.frames",
        "context_ids": [*names, LONG, LONG],
        "versions": [*([FRAMES - 1] * len(names)), LONG_FRAMES, 0],
        "types": [None] * (len(names) + 2),
        "separator": following.TYPES_SEPARATOR,
        "most_frames": 50,
        "most_bytes": 1_000_000,
    }
    with filled.transaction(force_rollback=True):
        filled.execute(f"SET LOCAL plan_cache_mode = {plan}")
        scanned, fetched = reads(filled, following.READ, asked)
    assert scanned <= {"topics"}, "a row for each topic and generation"
    assert fetched <= 2 * len(names) + 50 + 10


@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
def test_contexts_that_are_read_together_are_each_read_alone(filled, plan):
    names = [f"context-{number}" for number in range(1, 11)]
    asked = {
        "ids": [*names, LONG, "nobody"],
        "versions": [*([None] * 5), *([30] * 5), 100, None],
        "times": [None] * (len(names) + 2),
    }
    each = FRAMES / 4 + MESSAGES * 1.1
    with filled.transaction(force_rollback=True):
        filled.execute(f"SET LOCAL plan_cache_mode = {plan}")
        assert reads(filled, context_json.HEADS, asked)[1] <= 3 * len(names) + 10
        newest = reads(filled, context_json.NEWEST, {"ids": json.dumps(asked["ids"])})
        assert newest[0] == set()
        assert newest[1] <= 3 * len(names) + 10
        scanned, fetched = reads(filled, context_json.CONTEXTS, asked)
    assert scanned == set()
    assert fetched <= len(names) * each + 50 + LONG_FRAMES / 8, "of the long one only its calls"


@pytest.mark.parametrize(
    ("selection", "options", "most_rows"),
    [
        (Selection(), {}, 51 * 35 + LONG_FRAMES / 8),
        (Selection(prefix="context-199"), {}, 11 * 35),
        (Selection(prefix="context-199"), {"last_active": True}, 11 * 35),
        (Selection(prefix="context-199", text="word", model="m", status="quiet"), {}, 11 * 60),
        (Selection(prefix="nobody/", text="word", model="m", status="quiet"), {}, 0),
        (Selection(), {"behind": (datetime(2026, 1, 1, 12, tzinfo=UTC), ONE)}, 51 * 35),
        (Selection(text="nowhere"), {}, listing.SEARCHED * (MESSAGES + 4) + LONG_MESSAGES),
        (Selection(model="nobody's"), {}, listing.SEARCHED * 8 + LONG_FRAMES / 8),
    ],
)
def test_a_list_reads_a_range_of_ids_or_the_newest_however_often_it_is_asked_for(
    filled, selection, options, most_rows
):
    times = 12

    async def asked():
        # Often enough that psycopg prepares the statement and PostgreSQL chooses a generic plan.
        async with counting(filled) as connection:
            for _ in range(times):
                await listing.page(connection, selection, 50, **options)
            return await (await connection.execute(COUNTED)).fetchall()

    found = asyncio.run(asked())
    assert [table for table, scans, _ in found if scans] == []
    assert sum(rows for _, _, rows in found) <= times * most_rows


@pytest.mark.regression("fault 300")
def test_a_list_by_activity_reads_the_messages_of_the_conversations_that_it_shows(filled):
    async def listed():
        async with counting(filled) as connection:
            found = await conversations.last_active(connection, 20, 10, experiments=True)
            return found, await (await connection.execute(COUNTED)).fetchall()

    found, reads_of_tables = asyncio.run(listed())
    assert len(found) == 20
    # No index has the times of the newest frames.
    assert {table for table, scans, _ in reads_of_tables if scans} <= {"contexts"}
    assert sum(rows for table, _, rows in reads_of_tables if table == "messages") <= 20 * 2 * MESSAGES * 1.1


@pytest.mark.regression("fault 301")
def test_a_purge_reads_no_claims_that_it_keeps(filled):
    async def purged():
        async with counting(filled) as connection:
            assert await held.purge(connection, claims_days=100_000, workers_days=100_000, limit=2_000) == 0
            [(read,)] = await (
                await connection.execute(
                    "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'claims'"
                )
            ).fetchall()
            return read

    # A join looks at the first row before it knows that nothing is to be deleted.
    assert asyncio.run(purged()) <= 1


@pytest.mark.regression("fault 88")
def test_the_pages_of_a_search_have_all_that_matches_and_each_looks_through_a_part(filled):
    matching = "SELECT context_id FROM contexts WHERE context_id LIKE %s ORDER BY started_at DESC"
    address = f"{filled.info.dsn} password={filled.info.password}"

    async def pages_of(text):
        pages, behind = [], None
        async with await AsyncConnection.connect(address, autocommit=True) as connection:
            while True:
                page = await listing.page(
                    connection, Selection(text=text, experiments=True), 40, behind=behind
                )
                pages.append([one.context_id for one in page.contexts])
                if (behind := page.last) is None:
                    return pages

    for text, counts in (
        ("context-7", [0, 40, 40, 31]),
        ("context-1999", [1, 0, 0]),
        ("context-1", [40] * 27 + [31]),
        ("elsewhere", [0, 0, 0]),
    ):
        pages = asyncio.run(pages_of(text))
        assert [one for page in pages for one in page] == [
            one for (one,) in filled.execute(matching, (f"%{text}%",)).fetchall()
        ]
        assert [len(page) for page in pages] == counts


@pytest.mark.regression("fault 302")
def test_the_pages_of_a_status_have_all_that_have_it_and_each_looks_through_a_part(filled, monkeypatch):
    monkeypatch.setattr(listing, "SEARCHED_BY_STATUS", 500)
    parked = """
        SELECT context_id FROM contexts WHERE parked_version IS NOT NULL AND NOT experiment ORDER BY started_at DESC
    """
    address = f"{filled.info.dsn} password={filled.info.password}"

    async def pages():
        found, behind, most = [], None, 0
        async with await AsyncConnection.connect(address) as connection:
            while True:
                before = sum(rows for _, _, rows in await (await connection.execute(COUNTED)).fetchall())
                page = await listing.page(connection, Selection(status="parked"), 50, behind=behind)
                after = sum(rows for _, _, rows in await (await connection.execute(COUNTED)).fetchall())
                found.append([one.context_id for one in page.contexts])
                most = max(most, after - before)
                if (behind := page.last) is None:
                    return found, most

    found, most = asyncio.run(pages())
    assert len(found) == 4
    assert [one for page in found for one in page] == [one for (one,) in filled.execute(parked).fetchall()]
    # Twice: for the end of the part, and for what is in it.
    assert most <= 2 * 500 * 1.1 + 20 * 35


@pytest.mark.regression("fault 303")
@pytest.mark.parametrize("plan", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("priced", [True, False])
def test_the_prices_of_runs_are_looked_up_for_a_limit_of_money_alone(filled, plan, priced):
    first = datetime(2026, 1, 1, tzinfo=UTC)
    asked = {"first": first, "before": first + timedelta(seconds=5), "priced": priced}
    with filled.transaction(force_rollback=True):
        filled.execute(f"SET LOCAL plan_cache_mode = {plan}")
        scanned, _ = reads(filled, spending.OF_ALL, asked)
    assert scanned == ({"prices"} if priced else set())


def test_the_tables_that_a_query_scans_are_counted(filled):
    scanned, _ = reads(filled, "SELECT count(*) FROM messages WHERE text LIKE '%x%'")
    assert scanned == {"messages"}


def test_a_head_that_is_written_again_leaves_every_index_as_it_is(filled):
    hot = "SELECT pg_stat_get_xact_tuples_hot_updated('contexts'::regclass)"
    with filled.transaction(force_rollback=True):
        filled.execute(
            "UPDATE contexts SET version = version + 1, state_version = state_version + 1, last_at = now(), "
            "run_version = 3, message_count = 4, chain = sha256('y'), state = '{}' WHERE context_id = %s",
            (ONE,),
        )
        assert filled.execute(hot).fetchone() == (1,)


SPEAK = f"""
    UPDATE frames SET
        type = CASE version % 4 WHEN 0 THEN 'FunctionCallResultFrame' ELSE 'TranscriptionFrame' END
    WHERE context_id = '{LONG}';
    UPDATE frames SET
        type = 'LLMMessagesAppendFrame',
        payload = '{{"run_llm":true,"metadata":{{"chat_completion":{{}}}}}}'
    WHERE context_id = '{LONG}' AND version = 10 AND is_asked;
    UPDATE context_settings SET value = '{{"system_instruction":"Be brief."}}'
    WHERE context_id = '{LONG}' AND name = 'settings'
"""


@pytest.mark.regression("fault 52")
@pytest.mark.regression("gateway 31")
@pytest.mark.parametrize("is_asked", [True, False])
def test_the_latest_request_is_found_however_much_was_said_since(filled, is_asked):
    """The conversation has 20,000 frames of speech and of a service's calls."""
    about = {
        "id": LONG,
        "setting": "system_instruction",
        "client": "%ag_ui%",
        "answering": ["FunctionCallResultFrame"],
        "speaking": list(SPEAKING),
    }
    found = "SELECT * FROM contexts LEFT JOIN ({}) AS found ON true WHERE contexts.context_id = %(id)s"
    with filled.transaction(force_rollback=True):
        # Frames are an archive, whose triggers keep them as they are.
        filled.execute("SET LOCAL session_replication_role = replica")
        filled.execute(SPEAK.replace("is_asked", str(is_asked)))
        for plan in ("force_custom_plan", "force_generic_plan"):
            filled.execute(f"SET LOCAL plan_cache_mode = {plan}")
            for query in (
                answered_requests.LATEST,
                client_requests.LAST_QUESTION,
                client_requests.LAST_ASKED,
            ):
                scanned, fetched = reads(filled, found.format(query), about)
                assert scanned == set()
                assert fetched < FRAMES


def test_a_response_reads_the_frames_of_its_answer_alone(filled):
    """The conversation has 20,000 frames. Each twentieth asks, and there are calls and runs throughout."""
    asking = {"asking": list(ASKING), "speaking": list(SPEAKING)}
    with filled.transaction(force_rollback=True):
        # Frames are an archive, whose triggers keep them as they are.
        filled.execute("SET LOCAL session_replication_role = replica")
        filled.execute(ASK)
        for version, earliest in ((10_010, 10_010), (10_019, 0), (2**63 - 1, 0)):
            about = {"id": LONG, "version": version, "earliest": earliest, **asking}
            scanned, fetched = reads(filled, answered_requests.READ, about)
            assert scanned == set()
            assert fetched < 20 * FRAMES
        scanned, fetched = reads(filled, answered_requests.BEYOND, {"id": LONG, "version": 10_010, **asking})
        assert scanned == set()
        assert fetched < 20 * FRAMES


ASK = f"""
    UPDATE frames SET
        type = 'LLMMessagesAppendFrame',
        payload = '{{"run_llm":true,"metadata":{{"chat_completion":{{}}}}}}'
    WHERE context_id = '{LONG}' AND version % 20 = 10;
    UPDATE tool_calls SET settled_version = requested_version + 1 WHERE context_id = '{LONG}'
"""

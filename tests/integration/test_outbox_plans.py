"""Reading the outbox reads a page, however many rows it has, and each row once to divide it into pages.

Measured by the blocks that the database fetched: a full scan of an index would fetch no more rows.
"""

import asyncio

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.plans import Explaining, nodes
from tests.support.tiers import long

from frameledger_services.store import outbox

FEW, MANY = 2_000, 40_000

# Two generations of one partition, each with half of the rows, in no order, as publishing and deleting leave them.
FILL = """
    INSERT INTO outbox (topic, partition, generation, "offset", ordinal, kind, to_topic, value, headers)
    SELECT 'frames', 0, 1 + n % 2, n / 4, n / 2 % 2, 'effect', 'runs', repeat('x', 200)::bytea, '[]'
    FROM generate_series(0, {rows} - 1) AS n
    ORDER BY hashint4(n)
"""

BLOCKS = """
    SELECT pg_stat_get_xact_blocks_fetched('outbox'::regclass)
        + pg_stat_get_xact_blocks_fetched('outbox_pkey'::regclass)
"""


def on(address, rows, plan, analyzed, test):
    """Returns the result of `test`, run in a transaction of a database with this many rows in its outbox."""

    async def scenario():
        async with (
            asyncio.timeout(ON_SERVERS),
            await psycopg.AsyncConnection.connect(address, autocommit=True) as connection,
        ):
            await connection.execute("TRUNCATE outbox")
            await connection.execute(FILL.format(rows=rows))
            if analyzed:
                await connection.execute("VACUUM ANALYZE outbox")
            async with connection.transaction():
                await connection.execute(f"SET LOCAL plan_cache_mode = {plan}")
                await connection.execute("SET LOCAL max_parallel_workers_per_gather = 0")
                return await test(connection)

    return asyncio.run(scenario())


async def blocks(connection):
    return (await (await connection.execute(BLOCKS)).fetchone())[0]


PLANS = pytest.mark.parametrize("plan", [long("force_custom_plan"), "force_generic_plan"])
ANALYZED = pytest.mark.parametrize("analyzed", [False, long(True)])


@PLANS
@ANALYZED
def test_a_page_is_found_by_its_offsets_however_many_rows_are_left(database, plan, analyzed):
    async def read(connection):
        pages = await outbox.left_behind(connection, "frames", 0)
        for page in pages[:: len(pages) // 4]:
            explaining = Explaining(connection, prepare=True)
            before = await blocks(connection)
            rows, _ = await outbox.read(explaining, page)
            # One block for each row, because the rows are scattered, and a few of the index.
            assert await blocks(connection) - before <= 1.2 * outbox.PAGE_ROWS
            places = [one.place for one in rows]
            assert len(places) == page.rows
            assert places == sorted(places)
            conditions = [node.get("Index Cond", "") for node in nodes(explaining.plan)]
            assert any('ROW("offset", ordinal)' in one for one in conditions)

    for rows in (FEW, MANY):
        on(database, rows, plan, analyzed, read)


@PLANS
@ANALYZED
def test_rows_that_are_left_are_read_once_to_know_their_pages(database, plan, analyzed, monkeypatch):
    async def left(connection):
        before = await blocks(connection)
        pages = await outbox.left_behind(connection, "frames", 0)
        return sum(page.rows for page in pages), await blocks(connection) - before

    monkeypatch.setattr(outbox, "FETCH_ROWS", 500)
    for rows in (FEW, MANY):
        found, fetched = on(database, rows, plan, analyzed, left)
        assert found == rows
        assert fetched <= 1.2 * rows

"""The rows that an interruption and a cancel tool read: calls in progress, not all of the conversation."""

import asyncio

import psycopg
import pytest
from tests.support.plans import Explaining, nodes

from frameledger_services.store import tool_calls

FILL = """
    INSERT INTO tool_calls (context_id, requested_version, ordinal, requested_at, tool_call_id, function_name, status,
        arguments, synchronous, interrupted_version)
    SELECT 'long', n, 0, now(), 't' || n, 'f',
        CASE WHEN n = 20000 THEN 'waiting' WHEN n > 19990 THEN 'running' ELSE 'done' END, '{}', false, n + 1
    FROM generate_series(1, 20000) AS n
"""


@pytest.mark.regression("fault 74")
def test_calls_in_progress_are_found_without_those_before(database):
    async def run():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            await connection.execute(FILL)
            await connection.execute("VACUUM ANALYZE tool_calls")
            explaining = Explaining(connection, "ANALYZE, FORMAT JSON")
            assert await tool_calls.interrupted_by(explaining, "long", 19_996) == {(19_995, 0)}
            assert rows_read(explaining.plan) <= 10
            found = await tool_calls.running_async(explaining, "long", "f")
            assert [call.tool_call_id for call in found] == [f"t{n}" for n in range(19_991, 20_001)]
            assert rows_read(explaining.plan) <= 10

    asyncio.run(run())


def rows_read(plan):
    [scan] = [node for node in nodes(plan) if node.get("Relation Name") == "tool_calls"]
    return scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)

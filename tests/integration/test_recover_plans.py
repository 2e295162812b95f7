"""The stored frames that `recover` reads: the tail that may be lost, not the archive."""

import asyncio

import psycopg
import pytest
from tests.support.plans import Explaining, nodes

from frameledger_services.store import lost_frames
from frameledger_services.store.lost_frames import LostRange

FILL = """
    INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, chain, payload)
    SELECT 'c' || n % 500, n / 500 + 1, gen_random_uuid(), now(), n / 4, n % 4, 'x', 'applied', sha256(''), '{}'
    FROM generate_series(0, 59999) AS n
"""


@pytest.mark.regression("fault 17c")
def test_what_was_lost_is_counted_by_reading_the_tail_alone(database):
    async def run():
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            await connection.execute(FILL)
            await connection.execute("VACUUM ANALYZE frames")
            explaining = Explaining(connection, "ANALYZE, FORMAT JSON")
            counted = await lost_frames.count_lost(
                explaining, [LostRange(partition, 1, 14_990) for partition in range(4)]
            )
            assert counted == dict.fromkeys(range(4), 10)
            (read,) = [node for node in nodes(explaining.plan) if node.get("Relation Name") == "frames"]
            assert read["Node Type"] == "Bitmap Heap Scan"
            assert read["Actual Rows"] + read.get("Rows Removed by Index Recheck", 0) < 30_000

    asyncio.run(run())

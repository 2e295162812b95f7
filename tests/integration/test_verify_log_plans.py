"""The cost per record of comparing with Kafka does not depend on the length of a conversation."""

import uuid

import psycopg
import pytest
from tests.support.batches import value_of
from tests.support.plans import nodes

from frameledger_services.store.logged_frames import UNSTORED

FRAMES = 5_000


@pytest.mark.regression("fault 179")
def test_a_record_that_repeats_a_frame_is_looked_up_by_index(database):
    with psycopg.connect(database) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            'INSERT INTO frames (context_id, version, frame_id, logged_at, "offset", partition, type, outcome, chain, '
            "payload) SELECT 'ctx', n, gen_random_uuid(), now(), n, 0, 'LLMRunFrame', 'applied', sha256('x'), "
            '\'{"type":"LLMRunFrame"}\' FROM generate_series(1, %s) AS n',
            [FRAMES],
        )
        connection.execute("ANALYZE frames")
        repeated = value_of(connection, "SELECT frame_id FROM frames WHERE version = 1")
        for frame_id in (repeated, uuid.uuid4()):
            asked = {
                "topic": "llm.frames",
                "partition": 0,
                "generation": 1,
                "offset": 2,
                "id": "ctx",
                "frame_id": frame_id,
            }
            cursor = connection.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + UNSTORED, asked)
            plan = (cursor.fetchone() or ([{}],))[0][0]["Plan"]
            read = sum(
                one.get("Rows Removed by Filter", 0) + one["Actual Rows"] * one["Actual Loops"]
                for one in nodes(plan)
            )
            assert read < 10

"""A gateway is killed, with its projector and its database sessions: clients that retry until they get a response have
each frame stored once, and followers receive each frame once and in order."""

from contextlib import ExitStack

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.gateway import running
from tests.support.gateway_crowd import Audience, Talker, Writers, check
from tests.support.killable import Plan, projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

from frameledger_services.embedded import ports

WRITERS = 4
BATCHES = 25
STREAMS = 20
TALKERS = 2

FORGET_EVERYBODY = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.mark.long
def test_each_frame_counts_once_and_is_seen_once_whatever_is_killed(pipeline):
    port = ports.choose(0)
    also = {"gateway_port": str(port), "gateway_requests_per_sec": "1000000"}
    writers = Writers("kills", WRITERS, port, BATCHES, seed=1)
    audience = Audience(port, writers.context_ids, STREAMS)
    talkers = [Talker(f"talks-{number}", port, BATCHES, writers) for number in range(TALKERS)]
    with ExitStack() as projecting, ExitStack() as stack:
        first = projecting.enter_context(projector(pipeline.settings, Plan(member="it")))
        stack.enter_context(running(pipeline.settings, is_heard=False, **also))
        writers.start()
        for one in talkers:
            one.start()
        pipeline.until("SELECT count(*) >= %s FROM contexts", WRITERS + TALKERS)
        audience.start()
        writers.until_answered(writers.batches // 5)
        audience.until_connected(1)
        # This kills the gateway in the middle of its work.
        stack.close()
        stack.enter_context(running(pipeline.settings, is_heard=False, **also))
        writers.until_answered(2 * writers.batches // 5)
        first.kill()
        last = projecting.enter_context(projector(pipeline.settings, Plan(member="it")))
        writers.until_answered(3 * writers.batches // 5)
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            connection.execute(FORGET_EVERYBODY)
        writers.until_answered(4 * writers.batches // 5)
        audience.until_connected(2)
        stack.close()
        stack.enter_context(running(pipeline.settings, is_heard=False, **also))
        audience.until_connected(3)
        writers.until_answered(writers.batches)
        for one in talkers:
            one.join(ON_SERVERS)
        pipeline.until_idle(last)
        check(pipeline.address, writers, audience, talkers)
        assert last.stop() == 0
    assert writers.lost > 0
    pipeline.check(every=50)

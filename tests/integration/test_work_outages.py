"""A worker on the real servers through outages: leases, lost connections, blocked loops, lost answers."""

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest
from tests.support.worker_harness import SHORT_LEASE, HeldJobs, working

from frameledger.frames import LLMRunFrame
from frameledger_services.work import RUNS, LeaseLostError, heartbeat, session


def test_a_worker_that_was_judged_dead_stops_publishes_nothing_and_begins_a_new_session(harness):
    async def scenario():
        jobs = HeldJobs()
        worker = harness.worker(jobs.hold)
        async with working(worker):
            await harness.ask("a")
            await jobs.until_begun("a")
            (first,) = jobs.sessions
            assert len(await first.publisher.publish("a", LLMRunFrame(), causation_id=None)) == 1
            await harness.rows(
                "UPDATE workers SET heartbeat_at = heartbeat_at - interval '1 day' RETURNING worker_id"
            )
            await jobs.until_stopped(("a", "claim_lost"))
            with pytest.raises(LeaseLostError):
                await first.publisher.publish("a", LLMRunFrame(), causation_id=None)
            assert not first.lease.valid()
            # The next session takes it over, once it has been connected for a lease.
            await jobs.until(lambda: len(jobs.begun) == 2)
            assert jobs.by_context["a"].claimed.attempt == 2
            assert jobs.sessions[1].worker_id != first.worker_id
            jobs.end("a")
            await harness.until_finished(a="done")

    asyncio.run(scenario())


CUT_OFF = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'frameledger %%'
"""


def test_connections_that_break_are_made_again_and_the_work_goes_on(harness):
    async def scenario():
        jobs = HeldJobs()
        worker = harness.worker(jobs.hold)
        async with working(worker):
            await harness.ask("a")
            await jobs.until_begun("a")
            for number in range(3):
                assert await harness.rows(CUT_OFF)
                await harness.ask(f"b{number}")
                await jobs.until_begun(f"b{number}")
            jobs.end("a", "b0", "b1", "b2")
            await harness.until_finished(a="done", b0="done", b1="done", b2="done")
        assert len({session.worker_id for session in jobs.sessions}) == 1

    asyncio.run(scenario())


def test_what_has_ended_is_settled_over_a_new_connection_too(harness):
    broken = asyncio.Event()

    async def failpoint(step):
        if step == "before settling" and not broken.is_set():
            broken.set()
            await harness.rows(CUT_OFF)

    async def scenario():
        jobs = HeldJobs()
        async with working(harness.worker(jobs.hold, failpoint=failpoint)):
            await harness.ask("a")
            await jobs.until_begun("a")
            jobs.end("a")
            await harness.until_finished(a="done")
        assert broken.is_set()
        assert jobs.begun == ["a"]

    asyncio.run(scenario())


@asynccontextmanager
async def nobody_may_connect(harness, server):
    """Refuse connections to the database within the block, and end those that there are."""
    name = psycopg.conninfo.conninfo_to_dict(harness.address)["dbname"]
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        try:
            yield
        finally:
            await connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


def test_after_an_outage_of_the_database_beyond_the_lease_jobs_have_stopped_and_a_new_session_begins(
    harness, database_server
):
    harness.settings = harness.settings.model_copy(update=SHORT_LEASE)

    async def scenario():
        jobs = HeldJobs()
        worker = harness.worker(jobs.hold)
        async with working(worker):
            await harness.ask("a")
            await jobs.until_begun("a")
            async with nobody_may_connect(harness, database_server):
                # It finds by its own clock that the lease is over, because the database is away.
                await jobs.until(lambda: len(jobs.stopped) == len(jobs.begun))
                assert jobs.stopped[-1] == ("a", "claim_lost")
                assert not jobs.sessions[-1].lease.valid()
                begun = len(jobs.begun)
            await jobs.until(lambda: len(jobs.begun) > begun)
            assert jobs.sessions[begun - 1].worker_id != jobs.sessions[begun].worker_id
            assert jobs.claimed[begun].attempt > jobs.claimed[begun - 1].attempt
            jobs.end("a")
            await harness.until_finished(a="done")

    asyncio.run(scenario())


@pytest.mark.regression("fault 155")
def test_a_worker_that_is_to_stop_while_the_database_is_away_drains_its_jobs_all_the_same(
    harness, database_server, monkeypatch
):
    monkeypatch.setattr(session, "SETTLE_SECONDS", 0.1)
    harness.settings = harness.settings.model_copy(update={"work_drain_secs": 0.1})

    async def scenario():
        jobs = HeldJobs()
        async with working(harness.worker(jobs.hold)) as stopping:
            await harness.ask("a")
            await jobs.until_begun("a")
            async with nobody_may_connect(harness, database_server):
                stopping.set()
                await jobs.until(lambda: jobs.stopped)
        assert jobs.stopped == [("a", "draining")]

    asyncio.run(scenario())


def test_a_handler_that_blocks_the_loop_does_not_lose_the_lease(harness):
    harness.settings = harness.settings.model_copy(update=SHORT_LEASE)

    async def blocks(job, session):
        # This blocks the whole event loop.
        threading.Event().wait(1.5 * harness.settings.work_lease_secs)
        if not session.lease.valid():
            # On a busy machine the heartbeats may be late too. If there were none, no attempt would get further.
            return "release"
        await session.publisher.publish("a", LLMRunFrame(), causation_id=None)
        lives.append(session)
        return "done"

    lives: list = []

    async def scenario():
        async with working(harness.worker(blocks)):
            await harness.ask("a")
            await harness.until_finished(a="done")
        assert len(lives) == 1

    asyncio.run(scenario())


def test_a_loop_that_is_blocked_for_very_long_is_taken_for_dead(harness, monkeypatch):
    monkeypatch.setattr(heartbeat, "BLOCKED_SECONDS", 0.5)
    harness.settings = harness.settings.model_copy(update=SHORT_LEASE)

    async def blocks(job, session):
        attempts.append(job.claimed.attempt)
        if len(attempts) == 1:
            threading.Event().wait(2 * harness.settings.work_lease_secs)
            valid.append(session.lease.valid())
            return "release"
        return "done"

    attempts: list = []
    valid: list = []

    async def scenario():
        async with working(harness.worker(blocks)):
            await harness.ask("a")
            await harness.until_finished(a="done")

    asyncio.run(scenario())
    # On a busy machine such a short lease may end before the job begins, so there may be further attempts.
    first, second, *_ = attempts
    assert (first < second, valid) == (True, [False])


def test_a_claim_whose_answer_was_lost_is_released_and_done_as_the_next_attempt(harness):
    lost: list = []

    async def loses_its_answer(connection, *asked):
        found = await RUNS.claim(connection, *asked)
        if found.claimed and not lost:
            lost.extend(found.claimed)
            raise psycopg.OperationalError("the connection broke")
        return found

    async def scenario():
        jobs = HeldJobs()
        jobs.end("a")
        async with working(harness.worker(jobs.hold, kind=replace(RUNS, claim=loses_its_answer))):
            await harness.ask("a")
            await harness.until_finished(a="done")
        assert jobs.begun == ["a"]
        assert (lost[0].attempt, jobs.by_context["a"].claimed.attempt) == (1, 2)

    asyncio.run(scenario())


def test_work_that_fails_by_a_transient_error_is_released_for_another_attempt(harness):
    attempts = []

    async def fails_twice(job, session):
        attempts.append(job.claimed.attempt)
        if len(attempts) < 3:
            raise psycopg.OperationalError("away")
        return "done"

    async def scenario():
        async with working(harness.worker(fails_twice)):
            await harness.ask("a")
            await harness.until_finished(a="done")

    asyncio.run(scenario())
    assert attempts == [1, 2, 3]

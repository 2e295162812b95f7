"""A worker on the real servers through outages: leases, lost connections, blocked loops, lost answers."""

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest
from tests.support.worker_harness import SHORT_LEASE, Desk, working

from frameledger.frames import LLMRunFrame
from frameledger_services.work import RUNS, LeaseLostError, heartbeat, session


def test_a_worker_that_was_judged_dead_stops_publishes_nothing_and_begins_a_new_session(office):
    async def scenario():
        desk = Desk()
        worker = office.worker(desk.hold)
        async with working(worker):
            await office.ask("a")
            await desk.until_begun("a")
            (first,) = desk.sessions
            assert len(await first.publisher.publish("a", LLMRunFrame(), causation_id=None)) == 1
            await office.rows(
                "UPDATE workers SET heartbeat_at = heartbeat_at - interval '1 day' RETURNING worker_id"
            )
            await desk.until_told(("a", "claim_lost"))
            with pytest.raises(LeaseLostError):
                await first.publisher.publish("a", LLMRunFrame(), causation_id=None)
            assert not first.lease.valid()
            # The next session takes it over, once it has been connected for a lease.
            await desk.until(lambda: len(desk.begun) == 2)
            assert desk.jobs["a"].claimed.attempt == 2
            assert desk.sessions[1].worker_id != first.worker_id
            desk.end("a")
            await office.until_finished(a="done")

    asyncio.run(scenario())


CUT_OFF = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'frameledger %%'
"""


def test_connections_that_break_are_made_again_and_the_work_goes_on(office):
    async def scenario():
        desk = Desk()
        worker = office.worker(desk.hold)
        async with working(worker):
            await office.ask("a")
            await desk.until_begun("a")
            for number in range(3):
                assert await office.rows(CUT_OFF)
                await office.ask(f"b{number}")
                await desk.until_begun(f"b{number}")
            desk.end("a", "b0", "b1", "b2")
            await office.until_finished(a="done", b0="done", b1="done", b2="done")
        assert len({session.worker_id for session in desk.sessions}) == 1

    asyncio.run(scenario())


def test_what_has_ended_is_settled_over_a_new_connection_too(office):
    broken = asyncio.Event()

    async def failpoint(step):
        if step == "before settling" and not broken.is_set():
            broken.set()
            await office.rows(CUT_OFF)

    async def scenario():
        desk = Desk()
        async with working(office.worker(desk.hold, failpoint=failpoint)):
            await office.ask("a")
            await desk.until_begun("a")
            desk.end("a")
            await office.until_finished(a="done")
        assert broken.is_set()
        assert desk.begun == ["a"]

    asyncio.run(scenario())


@asynccontextmanager
async def nobody_may_connect(office, server):
    """Refuse connections to the database within the block, and end those that there are."""
    name = psycopg.conninfo.conninfo_to_dict(office.address)["dbname"]
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
    office, database_server
):
    office.settings = office.settings.model_copy(update=SHORT_LEASE)

    async def scenario():
        desk = Desk()
        worker = office.worker(desk.hold)
        async with working(worker):
            await office.ask("a")
            await desk.until_begun("a")
            async with nobody_may_connect(office, database_server):
                # It finds by its own clock that the lease is over, because the database is away.
                await desk.until(lambda: len(desk.told) == len(desk.begun))
                assert desk.told[-1] == ("a", "claim_lost")
                assert not desk.sessions[-1].lease.valid()
                begun = len(desk.begun)
            await desk.until(lambda: len(desk.begun) > begun)
            assert desk.sessions[begun - 1].worker_id != desk.sessions[begun].worker_id
            assert desk.claimed[begun].attempt > desk.claimed[begun - 1].attempt
            desk.end("a")
            await office.until_finished(a="done")

    asyncio.run(scenario())


@pytest.mark.regression("fault 155")
def test_a_worker_that_is_to_stop_while_the_database_is_away_drains_its_jobs_all_the_same(
    office, database_server, monkeypatch
):
    monkeypatch.setattr(session, "SETTLE_SECONDS", 0.1)
    office.settings = office.settings.model_copy(update={"work_drain_secs": 0.1})

    async def scenario():
        desk = Desk()
        async with working(office.worker(desk.hold)) as stopping:
            await office.ask("a")
            await desk.until_begun("a")
            async with nobody_may_connect(office, database_server):
                stopping.set()
                await desk.until(lambda: desk.told)
        assert desk.told == [("a", "draining")]

    asyncio.run(scenario())


def test_a_handler_that_blocks_the_loop_does_not_lose_the_lease(office):
    office.settings = office.settings.model_copy(update=SHORT_LEASE)

    async def blocks(job, session):
        # This blocks the whole event loop.
        threading.Event().wait(1.5 * office.settings.work_lease_secs)
        if not session.lease.valid():
            # On a busy machine the heartbeats may be late too. If there were none, no attempt would get further.
            return "release"
        await session.publisher.publish("a", LLMRunFrame(), causation_id=None)
        lives.append(session)
        return "done"

    lives: list = []

    async def scenario():
        async with working(office.worker(blocks)):
            await office.ask("a")
            await office.until_finished(a="done")
        assert len(lives) == 1

    asyncio.run(scenario())


def test_a_loop_that_is_blocked_for_very_long_is_taken_for_dead(office, monkeypatch):
    monkeypatch.setattr(heartbeat, "BLOCKED_SECONDS", 0.5)
    office.settings = office.settings.model_copy(update=SHORT_LEASE)

    async def blocks(job, session):
        attempts.append(job.claimed.attempt)
        if len(attempts) == 1:
            threading.Event().wait(2 * office.settings.work_lease_secs)
            valid.append(session.lease.valid())
            return "release"
        return "done"

    attempts: list = []
    valid: list = []

    async def scenario():
        async with working(office.worker(blocks)):
            await office.ask("a")
            await office.until_finished(a="done")

    asyncio.run(scenario())
    # On a busy machine such a short lease may end before the job begins, so there may be further attempts.
    first, second, *_ = attempts
    assert (first < second, valid) == (True, [False])


def test_a_claim_whose_answer_was_lost_is_released_and_done_as_the_next_attempt(office):
    lost: list = []

    async def loses_its_answer(connection, *asked):
        found = await RUNS.claim(connection, *asked)
        if found.claimed and not lost:
            lost.extend(found.claimed)
            raise psycopg.OperationalError("the connection broke")
        return found

    async def scenario():
        desk = Desk()
        desk.end("a")
        async with working(office.worker(desk.hold, kind=replace(RUNS, claim=loses_its_answer))):
            await office.ask("a")
            await office.until_finished(a="done")
        assert desk.begun == ["a"]
        assert (lost[0].attempt, desk.jobs["a"].claimed.attempt) == (1, 2)

    asyncio.run(scenario())


def test_work_that_fails_by_a_transient_error_is_released_for_another_attempt(office):
    attempts = []

    async def fails_twice(job, session):
        attempts.append(job.claimed.attempt)
        if len(attempts) < 3:
            raise psycopg.OperationalError("away")
        return "done"

    async def scenario():
        async with working(office.worker(fails_twice)):
            await office.ask("a")
            await office.until_finished(a="done")

    asyncio.run(scenario())
    assert attempts == [1, 2, 3]

"""Workers are killed or frozen at each step. Another one does the work, and a frozen one publishes nothing more."""

import asyncio
import signal

import pytest
from tests.bounds import ON_SERVERS, scaled
from tests.support.killable_worker import SERVICE, killable, quick_to_notice
from tests.support.tcp_proxy import proxy, redirected
from tests.support.worker_harness import SHORT_LEASE, HeldJobs, working

from frameledger.frames import LLMRunFrame
from frameledger_services.work import RUNS, Worker, effect_consumer

STEPS = {
    "before claim": 1,
    "after claim": 2,
    "before commit": 2,
    "after commit": 2,
    "before settling": 2,
    "after settling": None,
}
"""The lowest attempt with which another worker may do the work that was under way. None: it had been done."""

OUTAGE_SECONDS = 4.0
"""The least time that the broker is away: several times as long as a consumer group waits for a member."""


@pytest.fixture(autouse=True)
def quick(harness, monkeypatch):
    monkeypatch.setattr(effect_consumer, "consumer", quick_to_notice)
    harness.settings = harness.settings.model_copy(update=SHORT_LEASE)


def another(harness, perform):
    return Worker(harness.settings, RUNS, perform, service=SERVICE, serves_all=True)


def test_whatever_step_a_worker_is_killed_at_another_does_its_work(harness):
    async def scenario():
        jobs = HeldJobs()
        done = {}
        async with asyncio.timeout(ON_SERVERS):
            for step, attempt in STEPS.items():
                name = step.replace(" ", "-")
                jobs.end(name)
                with killable(harness.settings, step, holds="settling" not in step) as doomed:
                    await harness.ask(name)
                    assert await asyncio.to_thread(doomed.ended) == -signal.SIGKILL, step
                async with working(another(harness, jobs.hold)):
                    done[name] = "done"
                    await harness.until_finished(**done)
                assert (name in jobs.begun) == (attempt is not None), step
                if attempt is not None:
                    assert jobs.by_context[name].claimed.attempt >= attempt, step
        # No attempt is begun twice.
        begun = [(one.context_id, one.attempt) for one in jobs.claimed]
        assert len(set(begun)) == len(begun)

    asyncio.run(scenario())


@pytest.mark.long
def test_a_worker_that_is_killed_while_it_takes_over_is_taken_over_itself(harness):
    async def scenario():
        jobs = HeldJobs()
        jobs.end("a")
        with killable(harness.settings, "after claim") as first:
            await harness.ask("a")
            assert await asyncio.to_thread(first.ended) == -signal.SIGKILL
        with killable(harness.settings, "after take-over") as second:
            assert await asyncio.to_thread(second.ended) == -signal.SIGKILL
        async with working(another(harness, jobs.hold)):
            await harness.until_finished(a="done")
        # The second worker may have died at a look that found no work yet.
        assert jobs.by_context["a"].claimed.attempt >= 2

    asyncio.run(scenario())


def test_a_worker_that_was_frozen_beyond_its_lease_stops_its_jobs_and_publishes_nothing(harness):
    async def scenario():
        jobs = HeldJobs()
        with killable(harness.settings, holds=True) as frozen:
            await harness.ask("a")
            assert await asyncio.to_thread(frozen.hear) == ("began", "a", 1)
            frozen.send(signal.SIGSTOP)
            await asyncio.to_thread(frozen.frozen)
            async with working(another(harness, jobs.hold)):
                await jobs.until_begun("a")
                assert jobs.by_context["a"].claimed.attempt >= 2
                frozen.send(signal.SIGCONT)
                assert await asyncio.to_thread(frozen.hear) == ("told", "claim_lost", "LeaseLostError")
                jobs.end("a")
                await harness.until_finished(a="done")
            frozen.send(signal.SIGTERM)
            assert await asyncio.to_thread(frozen.ended) == 0

    asyncio.run(scenario())


@pytest.mark.long
def test_during_an_outage_of_kafka_the_lease_holds_and_the_work_continues(harness, kafka):
    """Heartbeats renew the lease while the broker is away, however long that is. The test waits for one of them, and
    not for the end of a lease: on a busy machine a lease may end in any case."""
    harness.settings = harness.settings.model_copy(update={"work_lease_secs": scaled(20.0)})

    async def scenario(to_kafka):
        jobs = HeldJobs()
        async with working(another(harness, jobs.hold)):
            await harness.ask("a")
            await jobs.until_begun("a")
            (session,) = jobs.sessions
            # This connects its producer.
            await session.publisher.publish("a", LLMRunFrame(), causation_id=None)
            to_kafka.cut()
            before = (await harness.rows("SELECT now()"))[0][0]
            async with asyncio.TaskGroup() as tasks:
                publishing = tasks.create_task(
                    session.publisher.publish("a", LLMRunFrame(), causation_id=None)
                )
                await harness.until(
                    "SELECT heartbeat_at > %s::timestamptz + make_interval(secs => %s) FROM workers "
                    "WHERE worker_id = %s",
                    *(before, OUTAGE_SECONDS, session.worker_id),
                    expected=[(True,)],
                )
                assert session.lease.valid()
                assert not publishing.done()
                to_kafka.mend()
            await harness.ask("b")
            await jobs.until_begun("b")
            jobs.end("a", "b")
            await harness.until_finished(a="done", b="done")
        assert len({one.worker_id for one in jobs.sessions}) == 1

    with proxy(kafka.port) as to_kafka, redirected((kafka.port, to_kafka.port)):
        asyncio.run(scenario(to_kafka))

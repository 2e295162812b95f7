"""A worker on the real servers stops its jobs when they are cancelled and when it drains."""

import asyncio
import json
import time
from contextlib import suppress

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError
from tests.bounds import ON_SERVERS
from tests.support import no_coordinator
from tests.support.logs import make
from tests.support.scene import INTERRUPTION
from tests.support.worker_harness import HeldJobs, working

from frameledger.effects import Cancel, to_wire
from frameledger.record import Outgoing
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.functions import FunctionService
from frameledger_services.work import CALLS, RUNS, Worker, in_flight
from frameledger_services.work.cancellations import Cancelled, follow


def test_a_cancellation_stops_the_work_at_once(harness):
    async def scenario():
        jobs = HeldJobs()
        names = [f"c{number}" for number in range(10)]
        async with working(harness.worker(jobs.hold)), Producer(harness.settings) as producer:
            await harness.ask(*names)
            await jobs.until_begun(*names)
            waits = []
            for name in names:
                await harness.scene.fold((name, INTERRUPTION))
                cancel = harness.scene.cancels[-1]
                sent = time.monotonic()
                await producer.publish(
                    harness.names.cancellations,
                    [Outgoing(name.encode(), json.dumps(to_wire(cancel)).encode(), ())],
                )
                await jobs.until_stopped((name, "obsolete"))
                waits.append(jobs.at[name] - sent)
            print(
                f"\ncancellation published to job told, ms: {[round(1000 * one, 1) for one in sorted(waits)]}"
            )
            await harness.until_finished(**dict.fromkeys(names, "over"))

    asyncio.run(scenario())


def test_a_cancellation_that_is_lost_is_known_by_the_next_heartbeat(harness):
    async def scenario():
        jobs = HeldJobs()
        async with working(harness.worker(jobs.hold)):
            await harness.ask("a")
            await jobs.until_begun("a")
            before = time.monotonic()
            await harness.scene.fold(("a", INTERRUPTION))
            # No cancellation is published: the heartbeat tells the job.
            await jobs.until_stopped(("a", "obsolete"))
            print(f"\ninterruption folded to job told by heartbeat, ms: {1000 * (jobs.at['a'] - before):.0f}")

    asyncio.run(scenario())


def test_a_cancellation_that_comes_while_the_work_is_being_claimed_is_not_missed(harness, monkeypatch):
    claimed, heard, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
    add = Cancelled.add

    def add_and_tell(self, cancel):
        add(self, cancel)
        heard.set()

    monkeypatch.setattr(Cancelled, "add", add_and_tell)

    async def failpoint(step):
        if step == "after claim" and not claimed.is_set():
            claimed.set()
            await cancelled.wait()

    async def scenario():
        jobs = HeldJobs()
        async with working(harness.worker(jobs.hold, failpoint=failpoint)):
            await harness.ask("a")
            await claimed.wait()
            await harness.scene.fold(("a", INTERRUPTION))
            await harness.publish(*harness.scene.cancels)
            await heard.wait()
            cancelled.set()
            await jobs.until_stopped(("a", "obsolete"))
            assert jobs.by_context["a"].stop.is_set()

    asyncio.run(scenario())


def test_a_draining_worker_finishes_what_it_can_and_releases_the_rest(harness):
    async def scenario():
        jobs = HeldJobs()
        slow = harness.settings.model_copy(update={"work_drain_secs": 1.0})
        worker = Worker(slow, RUNS, jobs.hold, service="s", serves_all=True)
        async with working(worker) as stopping:
            await harness.ask("finishes", "is told")
            await jobs.until_begun("finishes", "is told")
            stopping.set()
            jobs.end("finishes")
            await jobs.until_stopped(("is told", "draining"))
        await harness.until_finished(**{"finishes": "done", "is told": "released"})
        assert await harness.rows("SELECT stopped_at IS NOT NULL FROM workers") == [(True,)]
        # Another worker takes it at once.
        again = HeldJobs()
        again.end("is told")
        async with working(harness.worker(again.hold)):
            await harness.until_finished(**{"finishes": "done", "is told": "done"})
        assert again.by_context["is told"].claimed.attempt == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("cancellations", [1, pytest.param(2, marks=pytest.mark.regression("worker 121"))])
def test_work_that_does_not_stop_is_cancelled_when_the_time_is_over(harness, monkeypatch, cancellations):
    monkeypatch.setattr(in_flight, "CANCEL_AGAIN_SECONDS", 0.1)

    async def stubborn(job, session):
        begun.set()
        for _ in range(cancellations - 1):
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    begun = asyncio.Event()

    async def scenario():
        hasty = harness.settings.model_copy(update={"work_drain_secs": 0.1, "work_grace_secs": 0.1})
        async with working(Worker(hasty, RUNS, stubborn, service="s", serves_all=True)):
            await harness.ask("a")
            await begun.wait()
        await harness.until_finished(a="released")

    asyncio.run(scenario())


@pytest.mark.regression("worker 154")
def test_work_that_does_not_stop_is_cancelled_also_if_its_claim_was_lost_and_made_again(harness, monkeypatch):
    monkeypatch.setattr(in_flight, "CANCEL_AGAIN_SECONDS", 0.1)
    begun = asyncio.Semaphore(0)
    cancelled = []

    async def stubborn(job, session):
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(job.claimed.attempt)

    async def scenario():
        hasty = harness.settings.model_copy(update={"work_drain_secs": 0.1, "work_grace_secs": 0.1})
        async with working(Worker(hasty, RUNS, stubborn, service="s", serves_all=True)):
            await harness.ask("a")
            await begun.acquire()
            # As after the database lost its latest commits, or another worker had the claim meanwhile.
            await harness.rows(
                "UPDATE claims SET token = DEFAULT, released_at = clock_timestamp() RETURNING effect_id"
            )
            await harness.until("SELECT attempt FROM claims WHERE released_at IS NULL", expected=[(2,)])
        # The second attempt was withdrawn while it waited for its turn.
        assert cancelled == [1]

    asyncio.run(scenario())


def test_jobs_that_wait_for_their_turn_are_released_at_once_when_the_worker_drains(harness):
    async def scenario():
        jobs = HeldJobs()
        worker = harness.worker(jobs.hold, kind=CALLS, service="s")
        async with working(worker) as stopping:
            first, second = await harness.scene.call("a", "f", "g")
            await harness.publish(first, second)
            await harness.until("SELECT count(*)::int FROM claims", expected=[(2,)])
            stopping.set()
            await harness.until("SELECT count(released_at)::int FROM claims", expected=[(1,)])
            jobs.end("a")
        assert len(jobs.begun) == 1

    asyncio.run(scenario())


def test_cancellations_are_followed_as_soon_as_their_topic_is_there(log_settings):
    async def scenario():
        topic = TopicNames(log_settings.topic_prefix).cancellations
        following = asyncio.Event()
        heard: asyncio.Queue[Cancel] = asyncio.Queue()
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(follow(log_settings, topic, heard.put_nowait, following))
            await make(log_settings)
            await following.wait()
            async with Producer(log_settings) as producer:
                cancel = Cancel("e", "ctx", 1, run_id="r")
                await producer.publish(topic, [Outgoing(b"ctx", json.dumps(to_wire(cancel)).encode(), ())])
            assert await heard.get() == cancel
            task.cancel()

    asyncio.run(scenario())


@pytest.mark.long
def test_a_bug_in_a_job_ends_the_worker_and_its_work_can_be_taken_at_once(harness):
    async def buggy(job, session):
        raise LookupError("a bug")

    async def scenario():
        worker = harness.worker(buggy)
        await harness.ask("a")
        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.timeout(ON_SERVERS):
                await worker.run(asyncio.Event())
        assert raised.group_contains(LookupError)
        jobs = HeldJobs()
        jobs.end("a")
        async with working(harness.worker(jobs.hold)):
            await harness.until_finished(a="done")
        assert jobs.by_context["a"].claimed.attempt == 2

    asyncio.run(scenario())


@pytest.mark.regression("fault 71")
def test_a_worker_that_cannot_join_its_group_stops_when_it_is_told_to(harness, monkeypatch):
    asked = no_coordinator.refuse(monkeypatch, GroupCoordinatorNotAvailableError)

    async def scenario():
        stopping = asyncio.Event()
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.worker(HeldJobs().hold).run(stopping))
            await asked.get()
            stopping.set()
        assert await harness.rows("SELECT FROM workers") == [], "it was none yet"

    asyncio.run(scenario())


@pytest.mark.regression("fault 71")
def test_a_program_stops_its_service_that_cannot_join_its_group(harness, monkeypatch):
    asked = no_coordinator.refuse(monkeypatch, GroupCoordinatorNotAvailableError)

    async def scenario():
        service = FunctionService(harness.settings)
        async with asyncio.timeout(ON_SERVERS), asyncio.TaskGroup() as tasks:
            tasks.create_task(service.start())
            await asked.get()
            await service.stop()

    asyncio.run(scenario())

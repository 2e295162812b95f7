"""A worker on the real servers receives effects, claims each once and does them in the order of their context."""

import asyncio
import gc
import warnings

import pytest
from tests.bounds import ON_SERVERS
from tests.support.scene import INTERRUPTION, Scene
from tests.support.worker_harness import HeldJobs, working

from frameledger.errors import ConfigurationError
from frameledger_services.claims import unclaimed
from frameledger_services.event_log.consumer import consumer
from frameledger_services.exception_groups import first
from frameledger_services.store.topics import TopicChangedError
from frameledger_services.work import CALLS, Worker, effect_consumer


def test_what_is_asked_for_is_done_once_and_its_offset_is_committed(harness):
    async def scenario():
        jobs = HeldJobs()
        jobs.end("a", "b", "c")
        one, other = (harness.worker(jobs.hold, service="shared") for _ in range(2))
        async with working(one, other):
            await harness.ask("a", "b", "c")
            await harness.until_finished(a="done", b="done", c="done")
        assert sorted(jobs.begun) == ["a", "b", "c"]
        assert await harness.committed("shared") == 3
        assert await harness.rows("SELECT count(*)::int FROM workers WHERE stopped_at IS NULL") == [(0,)]

    asyncio.run(scenario())


def test_a_new_service_begins_with_the_earliest_effects_and_passes_over_what_is_over(harness):
    async def scenario():
        await harness.ask("over", "open")
        await harness.scene.fold(("over", INTERRUPTION))
        jobs = HeldJobs()
        jobs.end("open")
        async with working(harness.worker(jobs.hold)):
            await harness.until_finished(open="done")
        assert jobs.begun == ["open"]

    asyncio.run(scenario())


def test_two_services_that_both_serve_it_do_it_once(harness):
    async def scenario():
        jobs = HeldJobs()
        names = [f"c{number}" for number in range(50)]
        jobs.end(*names)
        async with working(harness.worker(jobs.hold), harness.worker(jobs.hold)):
            await harness.ask(*names)
            await harness.until_finished(**dict.fromkeys(names, "done"))
        assert sorted(jobs.begun) == sorted(names)

    asyncio.run(scenario())


def test_long_jobs_delay_no_others_and_only_work_with_a_slot_is_claimed(harness, monkeypatch):
    """The group here drops a member that has not polled for two and a half seconds."""
    revoked, polled = [], []
    made = consumer

    def impatient(*args, **options):
        return made(*args, max_poll_interval_ms=2_500, **options)

    async def on_revoked(self, places):
        revoked.extend(places)
        await was(self, places)

    async def keep_membership(self):
        polled.append(self)
        await kept(self)

    was = effect_consumer.EffectConsumer.on_partitions_revoked
    kept = effect_consumer.EffectConsumer.keep_membership
    monkeypatch.setattr(effect_consumer, "consumer", impatient)
    monkeypatch.setattr(effect_consumer.EffectConsumer, "on_partitions_revoked", on_revoked)
    monkeypatch.setattr(effect_consumer.EffectConsumer, "keep_membership", keep_membership)

    async def is_left_alone(harness):
        """Tell whether the worker keeps its partitions for five seconds and polls meanwhile, about once a second."""
        revoked.clear()
        polled.clear()
        since = await now(harness)
        await harness.until("SELECT now() > %s::timestamptz + interval '5 s'", since, expected=[(True,)])
        return not revoked and len(polled) > 2

    async def scenario():
        jobs = HeldJobs()
        async with working(harness.worker(jobs.hold, slots=2)):
            await harness.ask("long", "a", "b", "c", "d")
            await jobs.until(lambda: len(jobs.begun) == 2)
            # The worker claims nothing else and keeps its partitions. On a busy machine it may lose them first, so the
            # check is repeated.
            async with asyncio.timeout(ON_SERVERS):
                while not await is_left_alone(harness):
                    pass
            assert len(await harness.rows("SELECT FROM claims")) == 2
            # One job keeps its slot to the end; the others are done in the other slot.
            stays = jobs.begun[0]
            others = [name for name in ("long", "a", "b", "c", "d") if name != stays]
            for name in others:
                jobs.end(name)
            await harness.until_finished(**dict.fromkeys(others, "done") | {stays: "going on"})
            jobs.end(stays)

    asyncio.run(scenario())


async def now(harness):
    return (await harness.rows("SELECT now()"))[0][0]


def test_what_a_full_worker_has_not_claimed_goes_to_the_next_owner_of_its_partition(harness, monkeypatch):
    monkeypatch.setattr(unclaimed, "AFTER_SECONDS", 3_600.0)

    async def scenario():
        jobs, other_jobs = HeldJobs(), HeldJobs()
        names = [f"c{number}" for number in range(12)]
        full = harness.worker(jobs.hold, service="shared", slots=1)
        other = harness.worker(other_jobs.hold, service="shared", slots=20)
        other_jobs.end(*names)
        async with working(full):
            await harness.ask(*names)
            await jobs.until(lambda: jobs.begun)
            async with working(other):
                await other_jobs.until(lambda: len(other_jobs.begun) >= 4)
                # The rest is in the partitions that this worker kept, and waits for its one slot.
                assert len(jobs.begun) == 1
                jobs.end(*names)
                await harness.until_finished(**dict.fromkeys(names, "done"))
        assert sorted(jobs.begun + other_jobs.begun) == sorted(names)

    asyncio.run(scenario())


def test_what_the_reader_of_a_partition_does_not_serve_or_has_no_slot_for_is_done_by_another(harness):
    """One member of the group serves more than the other, as while a new release is rolled out."""

    async def scenario():
        old, new = HeldJobs(), HeldJobs()
        new.end("a")
        workers = [
            Worker(harness.settings, CALLS, jobs.hold, service="rolling", serves=serves)
            for jobs, serves in ((old, ["f"]), (new, ["g"]))
        ]
        async with working(workers[0]):
            await harness.publish(*await harness.scene.call("a", "g", tools=("g",)))
            async with asyncio.timeout(ON_SERVERS):
                while not await harness.committed("rolling", harness.names.function_calls):
                    pass
            async with working(workers[1]):
                await harness.until_finished(a="done")
        assert (old.begun, new.begun) == ([], ["a"])

    asyncio.run(scenario())


def test_runs_of_one_context_go_one_after_the_other(harness):
    async def scenario():
        jobs = HeldJobs()
        async with working(harness.worker(jobs.hold)):
            (first,) = await harness.ask("a")
            await jobs.until_begun("a")
            first_job = jobs.by_context["a"]
            # The first run is interrupted, but its job is not told: no cancellation is published, and the next
            # heartbeat comes later.
            await harness.scene.fold(("a", INTERRUPTION))
            (second,) = await harness.ask("a")
            await jobs.until(lambda: len(jobs.begun) == 2)
            assert first_job.stop_reason == "obsolete"
            assert jobs.by_context["a"].claimed.run_id == second.run_id != first.run_id
            jobs.end("a")
            await harness.until("SELECT finish FROM claims ORDER BY version", expected=[("over",), ("done",)])

    asyncio.run(scenario())


def test_bytes_that_are_no_effects_are_passed_over(harness):
    async def scenario():
        jobs = HeldJobs()
        jobs.end("a", "b")
        worker = harness.worker(jobs.hold, service="tolerant")
        async with working(worker):
            bad = [
                b"",
                b"\xff",
                b"[]",
                b'{"effect":"cancel"}',
                b'{"effect":"run_inference","id":"a\\u0000"}',
                b"1" * 9,
            ]
            await harness.ask("a")
            await harness.publish_bytes(
                *(
                    (topic, "a", value)
                    for topic in (harness.names.inference, harness.names.cancellations)
                    for value in bad
                )
            )
            await harness.ask("b")
            await harness.until_finished(a="done", b="done")
            await harness.scene.fold(("a", INTERRUPTION))
        assert await harness.committed("tolerant") == 2 + len(bad)

    asyncio.run(scenario())


def test_calls_may_release_their_order(harness):
    async def scenario():
        jobs = HeldJobs()

        async def passes_on(job, session):
            job.release_order()
            return await jobs.hold(job, session)

        async with working(harness.worker(passes_on, kind=CALLS, per_key=10)):
            await harness.publish(*await harness.scene.call("a", "f", "g", "h"))
            await jobs.until(lambda: len(jobs.begun) == 3)
            jobs.end("a")

    asyncio.run(scenario())


def test_a_service_is_not_called_like_the_projectors_group(harness):
    with pytest.raises(ConfigurationError, match="projector"):
        harness.worker(None, service="projector")


def test_work_may_be_kept_with_the_next_attempt(harness):
    async def keeps(job, session):
        found.append(await session.next_attempt(job.claimed, job.claimed.attempt))
        found.append(await session.next_attempt(job.claimed, job.claimed.attempt))
        return "given_up"

    found: list = []

    async def scenario():
        async with working(harness.worker(keeps)):
            await harness.ask("a")
            await harness.until_finished(a="given_up")

    asyncio.run(scenario())
    assert found == [2, None]


def test_what_a_worker_serves_may_change_during_a_session(harness):
    async def scenario():
        jobs = HeldJobs()
        jobs.end("a")
        worker = Worker(harness.settings, CALLS, jobs.hold, service="s")
        async with working(worker):
            await worker.update_registration(serves=["f"], offers={"functions": []})
            assert await harness.rows("SELECT serves FROM workers") == [(["f"],)]
            await harness.publish(*await harness.scene.call("a", "f"))
            await harness.until_finished(a="done")

    asyncio.run(scenario())


@pytest.mark.regression("fault 95")
def test_a_worker_of_another_prefix_does_not_begin_and_leaves_nothing_open(harness):
    async def scenario():
        await Scene(harness.address, "other.llm.frames").ask("a")
        with pytest.raises(
            TopicChangedError, match=r"^This database was filled from the topic other\.llm\.frames,"
        ):
            await asyncio.wait_for(harness.worker(HeldJobs().hold).run(asyncio.Event()), ON_SERVERS)
        assert await harness.rows("SELECT FROM workers") == []

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(scenario())
        gc.collect()
    assert [str(one.message) for one in warned if issubclass(one.category, ResourceWarning)] == []


@pytest.mark.regression("fault 95")
def test_a_worker_that_began_with_an_empty_database_ends_when_another_prefix_fills_it(harness):
    jobs = HeldJobs()

    async def filled_meanwhile():
        async with working(harness.worker(jobs.hold)):
            await Scene(harness.address, "other.llm.frames").ask("a")
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as ended:
        asyncio.run(filled_meanwhile())
    assert isinstance(first(ended.value), TopicChangedError)
    assert jobs.begun == []
    assert asyncio.run(harness.rows("SELECT FROM claims")) == []

"""The session of a worker on the real servers: effects come, are claimed and done, and stop when they have to."""

import asyncio
import itertools
import json
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS
from tests.support.logs import make
from tests.support.scene import INTERRUPTION, Scene

from frameledger.effects import Cancel, to_wire
from frameledger.frames import LLMRunFrame
from frameledger.record import Outgoing
from frameledger_services.claims import unclaimed
from frameledger_services.event_log.consumer import TopicPartition, consumer
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.work import CALLS, RUNS, LeaseLostError, Worker, effect_consumer, heartbeat
from frameledger_services.work.cancellations import Cancelled, follow

LOOK_AGAIN = 0.02
_services = itertools.count(1)


@pytest.fixture
def office(log_settings, database):
    """Topics, a database, and conversations in it. The lease is short."""
    settings = log_settings.model_copy(
        update={
            "database_url": SecretStr(database),
            "work_lease_secs": 2.0,
            "work_heartbeat_secs": 0.1,
            "work_drain_secs": 5.0,
            "work_grace_secs": 5.0,
        }
    )
    asyncio.run(make(settings))
    return Office(settings, database)


class Office:
    def __init__(self, settings, address):
        self.settings = settings
        self.names = TopicNames(settings.topic_prefix)
        self.scene = Scene(address)
        self.address = address

    async def publish(self, *effects):
        """Put effects onto their topics, as the projector would."""
        topics = {
            "run_inference": self.names.inference,
            "call_function": self.names.function_calls,
            "cancel": self.names.cancellations,
        }
        await self.publish_bytes(
            *((topics[one.effect], one.context_id, json.dumps(to_wire(one)).encode()) for one in effects)
        )

    async def publish_bytes(self, *values):
        async with Producer(self.settings) as producer:
            for topic, group in itertools.groupby(values, key=lambda value: value[0]):
                await producer.publish(topic, [Outgoing(key.encode(), value, ()) for _, key, value in group])

    async def ask(self, *context_ids):
        """Have conversations ask for runs, and publish the effects."""
        effects = await self.scene.ask(*context_ids)
        await self.publish(*effects)
        return effects

    async def rows(self, query, *parameters):
        async with await psycopg.AsyncConnection.connect(self.address, autocommit=True) as connection:
            return await (await connection.execute(query, parameters)).fetchall()

    async def until(self, query, *parameters, expected):
        """Wait until the database answers so."""
        async with (
            asyncio.timeout(ON_SERVERS),
            await psycopg.AsyncConnection.connect(self.address, autocommit=True) as connection,
        ):
            while (found := await (await connection.execute(query, parameters)).fetchall()) != expected:
                async for _ in connection.notifies(timeout=LOOK_AGAIN):
                    pass
        return found

    async def until_finished(self, **expected):
        await self.until(
            "SELECT context_id, coalesce(finish, CASE WHEN released_at IS NULL THEN 'going on' ELSE 'released' END) "
            "FROM claims ORDER BY 1",
            expected=sorted(expected.items()),
        )

    async def committed(self, service, topic=None):
        """How many effects the group has behind it, over all partitions."""
        client = consumer(self.settings, group=f"{self.settings.topic_prefix}{service}")
        await client.start()
        try:
            places = [TopicPartition(topic or self.names.inference, number) for number in range(4)]
            return sum([await client.committed(place) or 0 for place in places])
        finally:
            await client.stop()

    def worker(self, perform, *, service=None, kind=RUNS, **options):
        service = service or f"service-{next(_services)}"
        return Worker(self.settings, kind, perform, service=service, serves_all=True, **options)


@asynccontextmanager
async def working(*workers):
    """Workers that live, for as long as the block lasts; then they drain."""
    stopping = asyncio.Event()
    async with asyncio.timeout(2 * ON_SERVERS), asyncio.TaskGroup() as tasks:
        for one in workers:
            tasks.create_task(one.run(stopping))
        async with asyncio.timeout(ON_SERVERS):
            for one in workers:
                await one.ready()
        try:
            yield stopping
        finally:
            stopping.set()


class Desk:
    """What jobs were begun, and when they may end."""

    def __init__(self, ending="done"):
        self.begun = []
        self.jobs = {}
        self.sessions = []
        self.told = []
        self.at = {}
        self._may_end = {}
        self._changed = asyncio.Condition()
        self.ending = ending

    async def hold(self, job, session):
        """Goes on until it is told to stop, or may end."""
        name = job.claimed.context_id
        may_end = self._may_end.setdefault(name, asyncio.Event())
        self.sessions.append(session)
        self.jobs[name] = job
        async with self._changed:
            self.begun.append(name)
            self._changed.notify_all()
        waits = [asyncio.ensure_future(event.wait()) for event in (may_end, job.stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
        if may_end.is_set():
            return self.ending
        async with self._changed:
            self.told.append((name, job.stop_reason))
            self.at[name] = time.monotonic()
            self._changed.notify_all()
        return "over" if job.stop_reason == "obsolete" else "release"

    def end(self, *names):
        for name in names:
            self._may_end.setdefault(name, asyncio.Event()).set()

    async def until(self, condition):
        async with asyncio.timeout(ON_SERVERS), self._changed:
            await self._changed.wait_for(condition)

    async def until_begun(self, *names):
        await self.until(lambda: set(names) <= set(self.begun))

    async def until_told(self, *told):
        await self.until(lambda: set(told) <= set(self.told))


def test_what_is_asked_for_is_done_once_and_its_offset_is_committed(office):
    async def scenario():
        desk = Desk()
        desk.end("a", "b", "c")
        one, other = (office.worker(desk.hold, service="shared") for _ in range(2))
        async with working(one, other):
            await office.ask("a", "b", "c")
            await office.until_finished(a="done", b="done", c="done")
        assert sorted(desk.begun) == ["a", "b", "c"]
        assert await office.committed("shared") == 3
        assert await office.rows("SELECT count(*)::int FROM workers WHERE stopped_at IS NULL") == [(0,)]

    asyncio.run(scenario())


def test_a_new_service_begins_with_the_earliest_effects_and_passes_over_what_is_over(office):
    async def scenario():
        await office.ask("over", "open")
        await office.scene.tell(("over", INTERRUPTION))
        desk = Desk()
        desk.end("open")
        async with working(office.worker(desk.hold)):
            await office.until_finished(open="done")
        assert desk.begun == ["open"]

    asyncio.run(scenario())


def test_two_services_that_both_serve_it_do_it_once(office):
    async def scenario():
        desk = Desk()
        names = [f"c{number}" for number in range(50)]
        desk.end(*names)
        async with working(office.worker(desk.hold), office.worker(desk.hold)):
            await office.ask(*names)
            await office.until_finished(**dict.fromkeys(names, "done"))
        assert sorted(desk.begun) == sorted(names)

    asyncio.run(scenario())


def test_long_work_holds_back_nobody_and_only_what_has_a_slot_is_claimed(office, monkeypatch):
    """The group would take a member for dead that does not poll for two seconds."""
    revoked = []
    made = consumer

    def impatient(*args, **options):
        return made(*args, max_poll_interval_ms=1_500, **options)

    async def on_revoked(self, places):
        revoked.extend(places)
        await was(self, places)

    was = effect_consumer.EffectConsumer.on_partitions_revoked
    monkeypatch.setattr(effect_consumer, "consumer", impatient)
    monkeypatch.setattr(effect_consumer.EffectConsumer, "on_partitions_revoked", on_revoked)

    async def scenario():
        desk = Desk()
        async with working(office.worker(desk.hold, slots=2)):
            revoked.clear()
            await office.ask("long", "a", "b", "c", "d")
            await desk.until(lambda: len(desk.begun) == 2)
            began = time.monotonic()
            # Nothing else is claimed, however long it lasts, and nothing is taken away.
            await office.until(
                "SELECT now() > %s::timestamptz + interval '3 s'", await now(office), expected=[(True,)]
            )
            assert time.monotonic() - began >= 3
            assert len(await office.rows("SELECT FROM claims")) == 2
            assert revoked == []
            # One is as long as the test; the others go through the other slot.
            stays = desk.begun[0]
            others = [name for name in ("long", "a", "b", "c", "d") if name != stays]
            for name in others:
                desk.end(name)
            await office.until_finished(**dict.fromkeys(others, "done") | {stays: "going on"})
            desk.end(stays)

    asyncio.run(scenario())


async def now(office):
    return (await office.rows("SELECT now()"))[0][0]


def test_what_a_full_worker_has_not_claimed_goes_to_the_next_owner_of_its_partition(office, monkeypatch):
    monkeypatch.setattr(unclaimed, "AFTER_SECS", 3_600.0)

    async def scenario():
        desk, other_desk = Desk(), Desk()
        names = [f"c{number}" for number in range(12)]
        full = office.worker(desk.hold, service="shared", slots=1)
        other = office.worker(other_desk.hold, service="shared", slots=20)
        other_desk.end(*names)
        async with working(full):
            await office.ask(*names)
            await desk.until(lambda: desk.begun)
            async with working(other):
                await other_desk.until(lambda: len(other_desk.begun) >= 4)
                # What is left is of the partitions that stayed, and still waits for the one slot.
                assert len(desk.begun) == 1
                desk.end(*names)
                await office.until_finished(**dict.fromkeys(names, "done"))
        assert sorted(desk.begun + other_desk.begun) == sorted(names)

    asyncio.run(scenario())


def test_what_the_reader_of_a_partition_does_not_serve_or_has_no_slot_for_is_done_by_another(office):
    """As while a new release is rolled out: one member of the group serves more than the other."""

    async def scenario():
        old, new = Desk(), Desk()
        new.end("a")
        workers = [
            Worker(office.settings, CALLS, desk.hold, service="rolling", serves=serves)
            for desk, serves in ((old, ["f"]), (new, ["g"]))
        ]
        async with working(workers[0]):
            await office.publish(*await office.scene.call("a", "g", tools=("g",)))
            async with asyncio.timeout(ON_SERVERS):
                while not await office.committed("rolling", office.names.function_calls):
                    pass
            async with working(workers[1]):
                await office.until_finished(a="done")
        assert (old.begun, new.begun) == ([], ["a"])

    asyncio.run(scenario())


def test_runs_of_one_context_go_one_after_the_other(office):
    async def scenario():
        desk = Desk()
        async with working(office.worker(desk.hold)):
            (first,) = await office.ask("a")
            await desk.until_begun("a")
            first_job = desk.jobs["a"]
            # The first is interrupted, and not told, because no cancellation is published; the heartbeat comes later.
            await office.scene.tell(("a", INTERRUPTION))
            (second,) = await office.ask("a")
            await desk.until(lambda: len(desk.begun) == 2)
            assert first_job.stop_reason == "obsolete"
            assert desk.jobs["a"].claimed.run_id == second.run_id != first.run_id
            desk.end("a")
            await office.until("SELECT finish FROM claims ORDER BY version", expected=[("over",), ("done",)])

    asyncio.run(scenario())


def test_a_cancellation_stops_the_work_at_once(office):
    async def scenario():
        desk = Desk()
        names = [f"c{number}" for number in range(10)]
        async with working(office.worker(desk.hold)), Producer(office.settings) as producer:
            await office.ask(*names)
            await desk.until_begun(*names)
            waits = []
            for name in names:
                await office.scene.tell((name, INTERRUPTION))
                cancel = office.scene.cancels[-1]
                sent = time.monotonic()
                await producer.publish(
                    office.names.cancellations,
                    [Outgoing(name.encode(), json.dumps(to_wire(cancel)).encode(), ())],
                )
                await desk.until_told((name, "obsolete"))
                waits.append(desk.at[name] - sent)
            print(
                f"\ncancellation published to job told, ms: {[round(1000 * one, 1) for one in sorted(waits)]}"
            )
            await office.until_finished(**dict.fromkeys(names, "over"))

    asyncio.run(scenario())


def test_a_cancellation_that_is_lost_is_known_within_a_second(office):
    async def scenario():
        desk = Desk()
        async with working(office.worker(desk.hold)):
            await office.ask("a")
            await desk.until_begun("a")
            before = time.monotonic()
            await office.scene.tell(("a", INTERRUPTION))
            folded = time.monotonic()
            await desk.until_told(("a", "obsolete"))
            print(f"\ninterruption folded to job told by heartbeat, ms: {1000 * (desk.at['a'] - before):.0f}")
            assert desk.at["a"] - folded < 1

    asyncio.run(scenario())


def test_a_cancellation_that_comes_while_the_work_is_being_claimed_is_not_missed(office, monkeypatch):
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
        desk = Desk()
        async with working(office.worker(desk.hold, failpoint=failpoint)):
            await office.ask("a")
            await claimed.wait()
            await office.scene.tell(("a", INTERRUPTION))
            await office.publish(*office.scene.cancels)
            await heard.wait()
            cancelled.set()
            await desk.until_told(("a", "obsolete"))
            assert desk.jobs["a"].stop.is_set()

    asyncio.run(scenario())


def test_bytes_that_are_no_effects_are_passed_over(office):
    async def scenario():
        desk = Desk()
        desk.end("a", "b")
        worker = office.worker(desk.hold, service="tolerant")
        async with working(worker):
            bad = [
                b"",
                b"\xff",
                b"[]",
                b'{"effect":"cancel"}',
                b'{"effect":"run_inference","id":"a\\u0000"}',
                b"1" * 9,
            ]
            await office.ask("a")
            await office.publish_bytes(
                *(
                    (topic, "a", value)
                    for topic in (office.names.inference, office.names.cancellations)
                    for value in bad
                )
            )
            await office.ask("b")
            await office.until_finished(a="done", b="done")
            await office.scene.tell(("a", INTERRUPTION))
        assert await office.committed("tolerant") == 2 + len(bad)

    asyncio.run(scenario())


def test_who_is_to_end_finishes_what_it_can_and_gives_the_rest_back(office):
    async def scenario():
        desk = Desk()
        slow = office.settings.model_copy(update={"work_drain_secs": 1.0})
        worker = Worker(slow, RUNS, desk.hold, service="s", serves_all=True)
        async with working(worker) as stopping:
            await office.ask("finishes", "is told")
            await desk.until_begun("finishes", "is told")
            stopping.set()
            desk.end("finishes")
            await desk.until_told(("is told", "draining"))
        await office.until_finished(**{"finishes": "done", "is told": "released"})
        assert await office.rows("SELECT stopped_at IS NOT NULL FROM workers") == [(True,)]
        # Another worker takes it at once.
        again = Desk()
        again.end("is told")
        async with working(office.worker(again.hold)):
            await office.until_finished(**{"finishes": "done", "is told": "done"})
        assert again.jobs["is told"].claimed.attempt == 2

    asyncio.run(scenario())


def test_work_that_does_not_stop_is_cancelled_when_the_time_is_over(office):
    async def stubborn(job, session):
        begun.set()
        await asyncio.Event().wait()

    begun = asyncio.Event()

    async def scenario():
        hasty = office.settings.model_copy(update={"work_drain_secs": 0.1, "work_grace_secs": 0.1})
        async with working(Worker(hasty, RUNS, stubborn, service="s", serves_all=True)):
            await office.ask("a")
            await begun.wait()
        await office.until_finished(a="released")

    asyncio.run(scenario())


def test_what_waits_for_its_turn_is_given_back_at_once_when_the_worker_ends(office):
    async def scenario():
        desk = Desk()
        worker = office.worker(desk.hold, kind=CALLS, service="s")
        async with working(worker) as stopping:
            first, second = await office.scene.call("a", "f", "g")
            await office.publish(first, second)
            await office.until("SELECT count(*)::int FROM claims", expected=[(2,)])
            stopping.set()
            await office.until("SELECT count(released_at)::int FROM claims", expected=[(1,)])
            desk.end("a")
        assert len(desk.begun) == 1

    asyncio.run(scenario())


def test_calls_may_pass_their_lane_on(office):
    async def scenario():
        desk = Desk()

        async def passes_on(job, session):
            job.release_order()
            return await desk.hold(job, session)

        async with working(office.worker(passes_on, kind=CALLS, per_key=10)):
            await office.publish(*await office.scene.call("a", "f", "g", "h"))
            await desk.until(lambda: len(desk.begun) == 3)
            desk.end("a")

    asyncio.run(scenario())


def test_who_was_judged_dead_stops_publishes_nothing_and_lives_anew(office):
    async def scenario():
        desk = Desk()
        worker = office.worker(desk.hold)
        async with working(worker):
            await office.ask("a")
            await desk.until_begun("a")
            (first,) = desk.sessions
            assert len(await first.publisher.publish("a", LLMRunFrame())) == 1
            await office.rows(
                "UPDATE workers SET heartbeat_at = heartbeat_at - interval '1 day' RETURNING worker_id"
            )
            await desk.until_told(("a", "claim_lost"))
            with pytest.raises(LeaseLostError):
                await first.publisher.publish("a", LLMRunFrame())
            assert not first.lease.valid()
            # The next session takes it over, once it has been connected for a lease.
            await desk.until(lambda: len(desk.begun) == 2)
            assert desk.jobs["a"].claimed.attempt == 2
            assert desk.sessions[1].worker_id != first.worker_id
            desk.end("a")
            await office.until_finished(a="done")

    asyncio.run(scenario())


def test_connections_that_break_are_made_again_and_the_work_goes_on(office):
    async def scenario():
        desk = Desk()
        worker = office.worker(desk.hold)
        async with working(worker):
            await office.ask("a")
            await desk.until_begun("a")
            for number in range(3):
                killed = await office.rows(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name LIKE 'frameledger %%'"
                )
                assert killed
                await office.ask(f"b{number}")
                await desk.until_begun(f"b{number}")
            desk.end("a", "b0", "b1", "b2")
            await office.until_finished(a="done", b0="done", b1="done", b2="done")
        assert len({session.worker_id for session in desk.sessions}) == 1

    asyncio.run(scenario())


@asynccontextmanager
async def nobody_may_connect(office, server):
    """The database is away for the block."""
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


def test_when_the_database_is_away_for_longer_than_the_lease_jobs_are_told_and_a_new_life_begins(
    office, database_server
):
    async def scenario():
        desk = Desk()
        worker = office.worker(desk.hold)
        async with working(worker):
            await office.ask("a")
            await desk.until_begun("a")
            async with nobody_may_connect(office, database_server):
                away = time.monotonic()
                await desk.until_told(("a", "claim_lost"))
                assert desk.at["a"] - away <= office.settings.work_lease_secs + 0.5
            await desk.until(lambda: len(desk.begun) == 2)
            assert desk.sessions[0].worker_id != desk.sessions[1].worker_id
            assert desk.jobs["a"].claimed.attempt == 2
            desk.end("a")
            await office.until_finished(a="done")

    asyncio.run(scenario())


def test_a_handler_that_blocks_the_loop_does_not_lose_the_lease(office):
    async def blocks(job, session):
        # Nothing else goes on in this loop meanwhile.
        threading.Event().wait(1.5 * office.settings.work_lease_secs)
        assert session.lease.valid()
        await session.publisher.publish("a", LLMRunFrame())
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
    assert (attempts, valid) == ([1, 2], [False])


def test_a_claim_whose_answer_was_lost_is_given_back_and_done_as_the_next_attempt(office):
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


def test_a_service_is_not_called_like_the_projectors_group(office):
    with pytest.raises(ValueError, match="projector"):
        office.worker(None, service="projector")


def test_a_bug_in_a_job_ends_the_worker_and_its_work_can_be_taken_at_once(office):
    async def buggy(job, session):
        raise LookupError("a bug")

    async def scenario():
        worker = office.worker(buggy)
        await office.ask("a")
        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.timeout(ON_SERVERS):
                await worker.run(asyncio.Event())
        assert raised.group_contains(LookupError)
        desk = Desk()
        desk.end("a")
        async with working(office.worker(desk.hold)):
            await office.until_finished(a="done")
        assert desk.jobs["a"].claimed.attempt == 2

    asyncio.run(scenario())


def test_work_that_fails_in_passing_is_given_back_for_another_attempt(office):
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


def test_work_may_be_kept_with_the_next_attempt(office):
    async def keeps(job, session):
        found.append(await session.next_attempt(job.claimed, job.claimed.attempt))
        found.append(await session.next_attempt(job.claimed, job.claimed.attempt))
        return "given_up"

    found: list = []

    async def scenario():
        async with working(office.worker(keeps)):
            await office.ask("a")
            await office.until_finished(a="given_up")

    asyncio.run(scenario())
    assert found == [2, None]


def test_what_a_worker_serves_may_change_while_it_lives(office):
    async def scenario():
        desk = Desk()
        desk.end("a")
        worker = Worker(office.settings, CALLS, desk.hold, service="s")
        async with working(worker):
            await worker.update_registration(serves=["f"], offers={"functions": []})
            assert await office.rows("SELECT serves FROM workers") == [(["f"],)]
            await office.publish(*await office.scene.call("a", "f"))
            await office.until_finished(a="done")

    asyncio.run(scenario())

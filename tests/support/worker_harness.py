"""Topics, a database, and workers whose jobs a test controls, for tests of `work`."""

import asyncio
import itertools
import json
import time
from contextlib import asynccontextmanager

import psycopg
import pytest
from pydantic import SecretStr
from tests.bounds import ON_SERVERS, scaled
from tests.support.logs import make
from tests.support.polling import NOTIFICATION_SECONDS
from tests.support.scene import Scene

from frameledger.effects import to_wire
from frameledger.record import Outgoing
from frameledger_services.event_log.consumer import TopicPartition, consumer
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.work import RUNS, Worker, session

_services = itertools.count(1)


SHORT_LEASE = {"work_lease_secs": scaled(2.0)}
"""For tests in which a lease has to expire. On a busy machine another one may expire too, so such tests do not count
attempts."""


@pytest.fixture
def harness(log_settings, database, monkeypatch):
    """Topics, a database and conversations. A lease lasts longer than a busy machine delays a worker, and a worker that
    is ready reads cancellations."""
    monkeypatch.setattr(session, "FOLLOW_SECONDS", ON_SERVERS)
    settings = log_settings.model_copy(
        update={
            "database_url": SecretStr(database),
            "work_lease_secs": scaled(20.0),
            "work_heartbeat_secs": 0.1,
            "work_drain_secs": scaled(20.0),
            "work_grace_secs": scaled(20.0),
        }
    )
    asyncio.run(make(settings))
    return WorkerHarness(settings, database)


class WorkerHarness:
    def __init__(self, settings, address):
        self.settings = settings
        self.names = TopicNames(settings.topic_prefix)
        self.scene = Scene(address, self.names.frames)
        self.address = address

    async def publish(self, *effects):
        """Publish effects to their topics, as a projector would."""
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
        """Let conversations request runs, and publish the effects."""
        effects = await self.scene.ask(*context_ids)
        await self.publish(*effects)
        return effects

    async def rows(self, query, *parameters):
        async with await psycopg.AsyncConnection.connect(self.address, autocommit=True) as connection:
            return await (await connection.execute(query, parameters)).fetchall()

    async def until(self, query, *parameters, expected):
        """Wait until the query returns this."""
        async with (
            asyncio.timeout(ON_SERVERS),
            await psycopg.AsyncConnection.connect(self.address, autocommit=True) as connection,
        ):
            while (found := await (await connection.execute(query, parameters)).fetchall()) != expected:
                async for _ in connection.notifies(timeout=NOTIFICATION_SECONDS):
                    pass
        return found

    async def until_finished(self, **expected):
        await self.until(
            "SELECT context_id, coalesce(finish, CASE WHEN released_at IS NULL THEN 'going on' ELSE 'released' END) "
            "FROM claims ORDER BY 1",
            expected=sorted(expected.items()),
        )

    async def committed(self, service, topic=None):
        """Returns the number of effects that the group has committed, over all partitions."""
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
    """Run workers within the block; they drain at its end."""
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


class HeldJobs:
    """Jobs that run until the test ends them, or their worker stops them."""

    def __init__(self, ending="done"):
        self.begun = []
        self.claimed = []
        self.by_context = {}
        self.sessions = []
        self.stopped = []
        self.at = {}
        self._may_end = {}
        self._changed = asyncio.Condition()
        self.ending = ending

    async def hold(self, job, session):
        """Run a job until it is stopped or the test ends it."""
        name = job.claimed.context_id
        may_end = self._may_end.setdefault(name, asyncio.Event())
        self.sessions.append(session)
        self.by_context[name] = job
        async with self._changed:
            self.begun.append(name)
            self.claimed.append(job.claimed)
            self._changed.notify_all()
        waits = [asyncio.ensure_future(event.wait()) for event in (may_end, job.stop)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()
        if may_end.is_set():
            return self.ending
        async with self._changed:
            self.stopped.append((name, job.stop_reason))
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

    async def until_stopped(self, *told):
        await self.until(lambda: set(told) <= set(self.stopped))

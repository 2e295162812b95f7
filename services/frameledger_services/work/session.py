"""One session of a worker: it registers, does work until it is stopped or its lease ends, and deregisters.

What happens if the process dies between two lines of this module, or of `claimer`:

- before it registers: nothing remains but a member of the group, whose session times out.
- before a claim: the offsets were not committed, so another member of the group reads the effects.
- after a claim, before the job begins, while it runs, or before its claim is finished: one lease later the claim is a
  dead worker's, and is taken over with the next attempt; if its run or call has ended by then, it is finished as over.
- after a claim, before its offset is committed: the effect is read again and found to be claimed.
- after a job ended, before its claim is finished or released: the same as while it runs.
- before it deregisters: others take its work over when its lease ends; once it has deregistered, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Generic, TypeVar

from frameledger import effects
from frameledger_services import claims, logs, supervision, transient
from frameledger_services.claims import Claimed, Registration
from frameledger_services.database_types import Connection
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.failpoints import Failpoint
from frameledger_services.keyed_executor import KeyedExecutor
from frameledger_services.settings import Settings
from frameledger_services.store import schema, topics
from frameledger_services.work.cancellations import follow
from frameledger_services.work.claimer import Claimer
from frameledger_services.work.database import Database
from frameledger_services.work.effect_consumer import EffectConsumer
from frameledger_services.work.heartbeat import HeartbeatThread
from frameledger_services.work.in_flight import InFlight
from frameledger_services.work.job import Perform, Session
from frameledger_services.work.job_span import WorkSource
from frameledger_services.work.kinds import JobKind
from frameledger_services.work.lease import Lease, LeaseLostError
from frameledger_services.work.metrics import WorkMetrics
from frameledger_services.work.publisher import WorkerPublisher

SETTLE_SECONDS = 5.0
"""Maximum seconds at the end for each of: releasing unknown claims, settling the others, and deregistering."""

FOLLOW_SECONDS = 5.0
"""Maximum seconds for which a worker that is otherwise ready waits until it reads cancellations."""

E = TypeVar("E", bound=effects.Effect)
C = TypeVar("C", bound=Claimed)

_log = logs.get_logger("worker")


class SessionRunner(Generic[E, C]):
    """Wires the parts of one session together. Its jobs see `session`."""

    def __init__(
        self,
        settings: Settings,
        kind: JobKind[E, C],
        registration: Registration,
        perform: Perform[C],
        *,
        per_key: int,
        failpoint: Failpoint,
        on_ready: Callable[[Session], None],
        metrics: WorkMetrics,
    ) -> None:
        """`on_ready` is called once the worker has partitions and reads cancellations."""
        self._settings = settings
        self._kind = kind
        self._registration = registration
        self._perform = perform
        self._per_key = per_key
        self._failpoint = failpoint
        self._names = TopicNames(settings.topic_prefix)
        self._lease = Lease(settings.work_lease_secs)
        self._database = Database(settings, registration.worker_id, self._on_reconnect)
        self._producer = Producer(settings, name=f"frameledger-{registration.service}")
        self._source = WorkSource(kind.topic(self._names), f"{settings.topic_prefix}{registration.service}")
        self._consumer: EffectConsumer[E] = EffectConsumer(
            settings,
            topic=self._source.topic,
            group=self._source.group,
            decode=kind.decode,
        )
        source = f"frameledger/{registration.kind}/{registration.service}"
        publisher = WorkerPublisher(self._producer, self._names.frames, self._lease, source)
        self.session = Session(registration.worker_id, publisher, self._lease, self._database)
        self._on_ready = on_ready
        self._metrics = metrics

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set, then drain; or until the lease ends, then stop all jobs.

        Raises one of `transient.EITHER` if it cannot begin, and `TopicChangedError` if the database was filled from a
        topic of another prefix.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._producer)
            stack.push_async_callback(self._database.close)
            # Also if it never starts, since it already exists.
            stack.push_async_callback(self._consumer.stop)
            await self._database.first(schema.check)
            await self._database.first(self._refuse_other_topic)
            if not await self._consumer.start(stopping):
                return
            sent, registration = self._lease.clock(), self._registration
            await self._database.first(lambda connection: claims.register(connection, registration))
            self._lease.renew(sent)
            stack.push_async_callback(self._deregister)
            _log.info("worker.started", worker=registration.worker_id, serves=list(registration.serves))
            async with asyncio.TaskGroup() as tasks:
                await self._work(tasks, stopping, registration)

    async def update_registration(self, registration: Registration) -> None:
        """Change what it serves. Returns once the database has it, or the lease has ended."""
        self._registration = registration
        with suppress(LeaseLostError):
            async with self._lease.held():
                await self._database.do(
                    lambda connection: claims.update_registration(connection, registration)
                )

    async def _work(
        self, tasks: asyncio.TaskGroup, stopping: asyncio.Event, registered: Registration
    ) -> None:
        self._executor = KeyedExecutor(tasks, slots=self._registration.slots, per_key=self._per_key)
        executor = self._executor
        self._metrics.watch(self._registration.slots, lambda: executor.free_slots)
        self._in_flight = InFlight(
            self._executor,
            self.session,
            self._perform,
            self._kind.subject,
            source=self._source,
            grace_secs=self._settings.work_grace_secs,
            failpoint=self._failpoint,
        )
        heartbeats = HeartbeatThread(
            self._settings,
            self._registration.worker_id,
            self._lease,
            self._in_flight.by_effect,
            self._in_flight.apply_heartbeat,
        )
        if self._registration is not registered:
            # The registration changed while it was being inserted.
            await self.update_registration(self._registration)
        following = asyncio.Event()
        beating = tasks.create_task(heartbeats.run())
        settling = tasks.create_task(self._in_flight.settle())
        listening = tasks.create_task(
            follow(self._settings, self._names.cancellations, self._in_flight.cancel, following)
        )
        claiming = self._start_claiming(tasks, following)
        expiry = tasks.create_task(self._lease.until_ended())
        await self._until_stopped(tasks, stopping, expiry, beating)
        await _end(*claiming)
        if not expiry.done() and not beating.done():
            with suppress(LeaseLostError):
                async with self._lease.held():
                    await self._drain()
        is_lost = not self._lease.valid() or beating.done()
        self._lease.end()
        if is_lost:
            self._metrics.leases_lost.inc()
            _log.warning("worker.lease_lost", worker=self._registration.worker_id, jobs=len(self._in_flight))
            await self._in_flight.stop_all("claim_lost")
        await _end(beating, settling, listening, expiry)

    def _start_claiming(
        self, tasks: asyncio.TaskGroup, following: asyncio.Event
    ) -> tuple[asyncio.Task[None], ...]:
        """Start the tasks that claim work, until they are cancelled."""
        claimer = Claimer(
            kind=self._kind,
            session=self.session,
            consumer=self._consumer,
            check=self._refuse_other_topic,
            executor=self._executor,
            in_flight=self._in_flight,
            failpoint=self._failpoint,
            metrics=self._metrics,
        )
        return (
            tasks.create_task(claimer.from_topic()),
            tasks.create_task(claimer.from_others()),
            tasks.create_task(self._announce_ready(following)),
        )

    @staticmethod
    async def _until_stopped(
        tasks: asyncio.TaskGroup, stopping: asyncio.Event, *ended: asyncio.Task[None]
    ) -> None:
        """Returns when `stopping` is set or one of these tasks has ended. Heartbeats end with the lease, or because
        this loop was blocked for too long, which has the same consequences."""
        stop = tasks.create_task(stopping.wait())
        await asyncio.wait({stop, *ended}, return_when=asyncio.FIRST_COMPLETED)
        await _end(stop)

    async def _announce_ready(self, following: asyncio.Event) -> None:
        await self._consumer.assigned.wait()
        await supervision.pause(following, FOLLOW_SECONDS)
        self._on_ready(self.session)

    async def _drain(self) -> None:
        """Release jobs that have not begun at once; let the others run for a while, then ask them to stop."""
        _log.info("worker.draining", worker=self._registration.worker_id, jobs=len(self._in_flight))
        self._in_flight.release_waiting()
        await self._consumer.stop()
        # The claimer may have been cancelled in the middle of a claim. Jobs do not wait for an unreachable database.
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._database.do(self._release_unknown)
        try:
            async with asyncio.timeout(self._settings.work_drain_secs):
                await self._executor.join()
        except TimeoutError:
            await self._in_flight.stop_all("draining")
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._in_flight.until_all_settled()

    async def _deregister(self) -> None:
        with suppress(TimeoutError, *transient.DATABASE):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._database.do(
                    lambda connection: claims.leave(connection, self._registration.worker_id)
                )
        _log.info("worker.stopped", worker=self._registration.worker_id)

    async def _refuse_other_topic(self, connection: Connection) -> None:
        await topics.refuse_other(connection, self._names.frames)

    async def _on_reconnect(self, connection: Connection) -> None:
        """Record the outage, because other workers may have been without the database too, and the answer to a claim
        may have been lost."""
        await claims.reconnected(connection, self._registration.worker_id)
        await self._release_unknown(connection)

    async def _release_unknown(self, connection: Connection) -> None:
        if count := await claims.release_all_but(
            connection, self._registration.worker_id, self._in_flight.unsettled()
        ):
            _log.info("worker.unanswered_claims_released", worker=self._registration.worker_id, count=count)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

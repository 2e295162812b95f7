"""One life of a worker: it registers, takes work until it is told to stop or its lease is over, and goes.

What happens if the process dies between two lines of this module, or of `taking`:

- before a claim: the effects were not committed, and come again to another member of the group.
- after a claim, before the job begins, while it goes on, or before its claim is finished: the claim is a dead worker's
  one lease later, and taken over with the next attempt; if its run or call is over by then, it is finished as that.
- after a claim, before the commit of the offsets: the effects come again, and are found taken.
- after a job ended, before its claim was finished or released: the same as in the middle of it.
- before it left: others wait for the end of its lease before they take over; they need not once it has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Generic, TypeVar

from frameledger_services import claims, logs, transient
from frameledger_services.claims import Claimed, Registration
from frameledger_services.claims.values import Connection
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.failpoints import Failpoint
from frameledger_services.keyed_executor import KeyedExecutor
from frameledger_services.settings import Settings
from frameledger_services.store import schema
from frameledger_services.work.cancellations import follow
from frameledger_services.work.claimer import Claimer
from frameledger_services.work.database import Database
from frameledger_services.work.effect_consumer import EffectConsumer
from frameledger_services.work.heartbeat import HeartbeatThread
from frameledger_services.work.in_flight import InFlight
from frameledger_services.work.job import Perform, Session
from frameledger_services.work.kinds import JobKind
from frameledger_services.work.lease import Lease, LeaseLostError
from frameledger_services.work.publisher import Publisher

SETTLE_SECONDS = 5.0
"""How long it tries, when it ends, to finish and release claims, and to say that it leaves."""

FOLLOW_SECONDS = 5.0
"""How long a worker waits, before it says that it began, until it hears cancellations."""

E = TypeVar("E")
C = TypeVar("C", bound=Claimed)

_log = logs.get_logger("worker")


class SessionRunner(Generic[E, C]):
    """Wires the parts of one session. `session` is what its jobs see."""

    def __init__(
        self,
        settings: Settings,
        kind: JobKind[E, C],
        offer: Registration,
        perform: Perform[C],
        *,
        per_key: int,
        failpoint: Failpoint,
        began: Callable[[Session], None],
    ) -> None:
        """`began` is called when it has partitions and hears cancellations."""
        self._settings = settings
        self._kind = kind
        self._offer = offer
        self._perform = perform
        self._per_key = per_key
        self._failpoint = failpoint
        self._names = TopicNames(settings.topic_prefix)
        self._lease = Lease(settings.work_lease_secs)
        self._database = Database(settings, offer.worker_id, self._connected_again)
        self._producer = Producer(settings, name=f"frameledger-{offer.service}")
        self._consumer: EffectConsumer[E] = EffectConsumer(
            settings,
            topic=kind.topic(self._names),
            group=f"{settings.topic_prefix}{offer.service}",
            read=kind.read,
        )
        source = f"frameledger/{offer.kind}/{offer.service}"
        publisher = Publisher(self._producer, self._names.frames, self._lease, source)
        self.session = Session(offer.worker_id, publisher, self._lease, self._database)
        self._began = began

    async def run(self, stopping: asyncio.Event) -> None:
        """Live until `stopping` is set, and drain; or until the lease is over, and tell the jobs so.

        Raises one of `transient.EITHER` when it cannot begin.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._producer)
            stack.push_async_callback(self._database.close)
            await self._database.first(schema.check)
            await self._consumer.start()
            stack.push_async_callback(self._consumer.stop)
            sent, offer = self._lease.clock(), self._offer
            await self._database.first(lambda connection: claims.register(connection, offer))
            self._lease.renew(sent)
            stack.push_async_callback(self._leave)
            _log.info("worker.began", worker=self._offer.worker_id)
            async with asyncio.TaskGroup() as tasks:
                await self._live(tasks, stopping, offer)

    async def update_registration(self, offer: Registration) -> None:
        """What it serves has changed: returns when the database knows, or the lease is over."""
        self._offer = offer
        with suppress(LeaseLostError):
            async with self._lease.held():
                await self._database.do(lambda connection: claims.update_registration(connection, offer))

    async def _live(
        self, tasks: asyncio.TaskGroup, stopping: asyncio.Event, registered: Registration
    ) -> None:
        self._executor = KeyedExecutor(tasks, slots=self._offer.slots, per_key=self._per_key)
        self._in_flight = InFlight(
            self._executor,
            self.session,
            self._perform,
            self._kind.subject,
            grace_secs=self._settings.work_grace_secs,
            failpoint=self._failpoint,
        )
        heart = HeartbeatThread(
            self._settings, self._offer.worker_id, self._lease, self._in_flight.held, self._in_flight.heard
        )
        if self._offer is not registered:
            # It has changed meanwhile.
            await self.update_registration(self._offer)
        following = asyncio.Event()
        beating = tasks.create_task(heart.run())
        settling = tasks.create_task(self._in_flight.settle())
        listening = tasks.create_task(
            follow(self._settings, self._names.cancellations, self._in_flight.cancel, following)
        )
        taking = Claimer(
            *(self._kind, self._offer.worker_id, self._database, self._lease, self._consumer),
            *(self._executor, self._in_flight, self._failpoint),
        )
        from_topic = tasks.create_task(taking.from_topic())
        from_others = tasks.create_task(taking.from_others())
        beginning = tasks.create_task(self._begin(following))
        over = tasks.create_task(self._lease.over())
        stop = tasks.create_task(stopping.wait())
        # The heart ends when the lease does, or when the loop was blocked for too long: it comes to the same.
        await asyncio.wait({over, stop, beating}, return_when=asyncio.FIRST_COMPLETED)
        await _end(from_topic, from_others, beginning, stop)
        if not over.done() and not beating.done():
            with suppress(LeaseLostError):
                async with self._lease.held():
                    await self._drain()
        is_lost = not self._lease.valid() or beating.done()
        self._lease.end()
        if is_lost:
            _log.warning("worker.lease_lost", worker=self._offer.worker_id, jobs=len(self._in_flight))
            await self._in_flight.stop_all("lost")
        await _end(beating, settling, listening, over)

    async def _begin(self, following: asyncio.Event) -> None:
        await self._consumer.assigned.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_SECONDS):
                await following.wait()
        self._began(self.session)

    async def _drain(self) -> None:
        """What has not begun is given back at once; what goes on has some time, then it is told."""
        _log.info("worker.draining", worker=self._offer.worker_id, jobs=len(self._in_flight))
        self._in_flight.drop_waiting()
        await self._consumer.stop()
        # A claim may have been under way when it was told to end.
        await self._database.do(self._give_back_unknown)
        try:
            async with asyncio.timeout(self._settings.work_drain_secs):
                await self._executor.join()
        except TimeoutError:
            await self._in_flight.stop_all("draining")
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._in_flight.all_settled()

    async def _leave(self) -> None:
        with suppress(TimeoutError, *transient.DATABASE):
            async with asyncio.timeout(SETTLE_SECONDS):
                await self._database.do(lambda connection: claims.leave(connection, self._offer.worker_id))
        _log.info("worker.left", worker=self._offer.worker_id)

    async def _connected_again(self, connection: Connection) -> None:
        """Others were without the database too, perhaps; and an answer to a claim may have been lost."""
        await claims.reconnected(connection, self._offer.worker_id)
        _log.info("worker.reconnected", worker=self._offer.worker_id)
        await self._give_back_unknown(connection)

    async def _give_back_unknown(self, connection: Connection) -> None:
        if count := await claims.release_all_but(connection, self._offer.worker_id, self._in_flight.known()):
            _log.info("worker.unanswered_claims_released", worker=self._offer.worker_id, count=count)


async def _end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

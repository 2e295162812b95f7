"""Publishing: records are written in order, each once, to the partition of their key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from aiokafka import errors as kafka_errors

from frameledger.record import LogPosition, Outgoing
from frameledger_services.event_log import publish_errors
from frameledger_services.event_log.answers import Answers
from frameledger_services.event_log.broker import Broker, BrokerError, connect
from frameledger_services.event_log.budget import Budget
from frameledger_services.event_log.publish_batch import PublishBatch, failure_of
from frameledger_services.event_log.sender import FLUSH_SECONDS, LARGEST, Sender
from frameledger_services.event_log.topics import TopicDescription, home_partition, missing, unwritable
from frameledger_services.settings import Settings
from frameledger_services.transient import is_retriable

ACKNOWLEDGED_WITHIN = 30.0
"""The default number of seconds for which `publish` waits."""

PAUSE_SECONDS = 0.1
"""Seconds after which records are sent again, or a topic is looked up again."""

ABSENT_SECONDS = 3.0
"""A topic that is missing for this time does not exist. Shortly after its start a broker may know no topics."""

WHY_SECONDS = 1.0
"""The timeout for finding out why records were not acknowledged in time."""

ALONE_BYTES = 1_000_000
"""A larger record is awaited before the next one is sent, since topics with Kafka's default max.message.bytes refuse
it."""

BYTES_ON_THE_WAY = LARGEST
"""The maximum number of unacknowledged bytes. A broker closes the connection on a request of more than 100 MiB, and
aiokafka, with a large record for each of many partitions, would send such a request repeatedly."""


class Producer:
    """An idempotent producer: a retry writes nothing twice, and records are written in the order given.

    An async context manager that connects when it is first used. Tasks may publish concurrently, in no particular order
    among them.
    """

    def __init__(
        self, settings: Settings, *, name: str = "frameledger", topics: Iterable[TopicDescription] = ()
    ) -> None:
        """`topics` are already known: the keys of their records keep the partitions of these descriptions, even if
        partitions were added since."""
        self._settings = settings
        self._name = name
        self._sender: Sender | None = None
        self._connecting = asyncio.Lock()
        self._beginning: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        """Senders that were replaced, while they stop."""

        self._publishing: set[asyncio.Timeout] = set()
        """The deadlines of the publications in progress."""

        self._is_closing = False
        self._all_published = asyncio.Event()
        self._all_published.set()
        self._budget = Budget(BYTES_ON_THE_WAY)
        self._topics = {topic.name: topic for topic in topics}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Send what is being published, for a few seconds at most; then it ends as at its deadline."""
        self._is_closing = True
        try:
            if self._beginning is not None:
                self._beginning.cancel()
                await asyncio.wait([self._beginning])
            latest = asyncio.get_running_loop().time() + FLUSH_SECONDS
            for deadline in self._publishing:
                # A publication whose deadline has passed is already ending.
                with suppress(RuntimeError):
                    deadline.reschedule(min(latest, deadline.when() or latest))
            await self._stop()
            # Including a publication that has no sender yet: it would create one that nobody stops.
            await self._all_published.wait()
        finally:
            await self._stop()

    async def _stop(self) -> None:
        if self._sender is not None:
            await self._replace(self._sender)
        if self._ending:
            await asyncio.wait(self._ending)

    def begin(self, topic: str) -> None:
        """Start connecting in the background, so that the first `publish` waits less. Errors are left to `publish`."""
        if self._sender is None and self._beginning is None:
            self._beginning = asyncio.create_task(self._begin(topic))

    async def publish(
        self, topic: str, records: Sequence[Outgoing], *, within: float = ACKNOWLEDGED_WITHIN
    ) -> list[LogPosition]:
        """Publish records in order. Returns the position of each, once all in-sync replicas have it.

        Waits for an unreachable broker up to `within` seconds, and then raises `UnacknowledgedError`. Raises
        `TooLargeError` for a record that is known to be too large for the topic: nothing was sent; `RecordRefusedError`
        for one that the broker refuses: later records of the same partition are not published, and all others are; and
        `BrokerError` if no broker answers at all or there is no such topic: nothing was sent.
        """
        batch = await self._published(topic, records, within)
        return [place for place in batch.places if place is not None]

    async def logged_ms(self, topic: str, records: Sequence[Outgoing]) -> list[int]:
        """Publish like `publish`. Returns when each record was logged, by its broker's clock, in milliseconds since
        1970."""
        batch = await self._published(topic, records, ACKNOWLEDGED_WITHIN)
        return [time for time in batch.logged_ms if time is not None]

    async def _published(self, topic: str, records: Sequence[Outgoing], within: float) -> PublishBatch:
        batch = PublishBatch(topic, records)
        deadline = asyncio.timeout(within)
        self._publishing.add(deadline)
        self._all_published.clear()
        try:
            await self._publish_until(deadline, batch, within)
        finally:
            self._publishing.discard(deadline)
            if not self._publishing:
                self._all_published.set()
        return batch

    async def _publish_until(self, deadline: asyncio.Timeout, batch: PublishBatch, within: float) -> None:
        topic, loop = batch.topic, asyncio.get_running_loop()
        began = loop.time()
        last_error: BaseException | None = None
        try:
            async with deadline:
                sender = await self._connected(topic) if batch.records else None
                if sender is not None and batch.may_exceed_limit(self._topics[topic]):
                    await self._check_limit(sender, batch)
                while pending := batch.pending:
                    if last_error is not None:
                        await asyncio.sleep(PAUSE_SECONDS)
                    try:
                        last_error = await self._send_all(batch, pending)
                    except BrokerError as error:
                        if last_error is None:
                            raise
                        last_error = error
        except TimeoutError:
            why: str | None = "The producer was closed meanwhile."
            if self._is_closing:
                within = min(within, round(loop.time() - began, 1))
            else:
                why = await self._why_pending(batch)
            known = self._topics.get(topic)
            raise publish_errors.unacknowledged(
                topic, batch.places, within, last_error, why, None if known is None else known.partitions
            ) from last_error

    async def _send_all(self, batch: PublishBatch, pending: Sequence[int]) -> BaseException | None:
        """Send these records once, and store their positions. Returns an error if some have none yet."""
        sender = await self._connected(batch.topic)
        sent: list[tuple[int, asyncio.Future[Any]]] = []
        answers = Answers()
        failures: list[BaseException] = []
        refused: set[int] = set()
        try:
            try:
                for index in pending:
                    # By the number of partitions that was seen first, so that keys keep their partition if some are
                    # added.
                    partition = home_partition(batch.records[index].key, self._topics[batch.topic].partitions)
                    if partition in refused:
                        continue
                    answer = await self._send(sender, partition, batch, index, answers)
                    sent.append((index, answer))
                    if batch.sizes[index] > ALONE_BYTES:
                        # After an error a new producer is used, whose records the broker accepts whatever came before.
                        await answers.until_all([answer])
                        if (failure := failure_of(answer)) is not None:
                            if is_retriable(failure):
                                break
                            refused.add(partition)
            except kafka_errors.KafkaError as error:
                # Not queued. Later records of the same partition must not overtake it.
                failures.append(error)
            await answers.until_all(answer for _, answer in sent)
        finally:
            # Also after the deadline.
            failures += batch.acknowledge(sent)
        if failures:
            await self._replace(sender)
            for failure in failures:
                if not is_retriable(failure):
                    raise publish_errors.refused(batch.topic, failure, batch.places) from failure
        return failures[0] if failures else None

    async def _send(
        self, sender: Sender, partition: int, batch: PublishBatch, index: int, answers: Answers
    ) -> asyncio.Future[Any]:
        """Queue a record. Returns the future of its answer; its size is taken from the budget until then."""
        size = batch.sizes[index]

        def answered() -> None:
            self._budget.give(size)
            answers.note()

        await self._budget.take(size)
        try:
            return await sender.send(batch.topic, partition, batch.records[index], answered)
        except BaseException:
            self._budget.give(size)
            raise

    async def _begin(self, topic: str) -> None:
        with suppress(Exception):
            await self._find_sender(topic)

    async def _connected(self, topic: str) -> Sender:
        if self._sender is not None and topic in self._topics:
            # The task that has the lock asks for another topic, or is about to find this sender.
            return self._sender
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ABSENT_SECONDS
        while (sender := await self._find_sender(topic)) is None:
            if loop.time() > deadline:
                raise BrokerError(missing(topic))
            # Without the lock: other tasks may want another topic.
            await asyncio.sleep(PAUSE_SECONDS)
        return sender

    async def _find_sender(self, topic: str) -> Sender | None:
        """Returns the sender; None if the topic does not exist."""
        async with self._connecting:
            if self._sender is None:
                self._sender = await Sender.start(self._settings, self._name)
            if topic not in self._topics:
                # Before aiokafka requests it, which would create it on brokers with auto.create.topics.enable.
                description = await Broker(self._sender.client, self._address).find(topic)
                if description is None:
                    return None
                self._topics[topic] = description
            return self._sender

    async def _check_limit(self, sender: Sender, batch: PublishBatch) -> None:
        """Raise `TooLargeError` for a record that is too large for the topic, before anything is sent."""
        # Requested again: the limit may have been raised since it was read.
        description = await Broker(sender.client, self._address).find(batch.topic)
        if description is not None:
            batch.check_limit(description)

    async def _why_pending(self, batch: PublishBatch) -> str | None:
        """Returns why records are not acknowledged, if a broker soon reports it; otherwise None."""
        known = self._topics.get(batch.topic)
        if known is None:
            return None
        with suppress(BrokerError, TimeoutError):
            # Not with the sender's connections: it may have been stopped.
            async with asyncio.timeout(WHY_SECONDS), connect(self._settings) as brokers:
                description = await brokers.find(batch.topic)
                if description is not None:
                    return unwritable(description, batch.pending_partitions(known.partitions))
        return None

    async def _replace(self, sender: Sender) -> None:
        """Stop a sender after sending what it has queued; the next `publish` creates another one. It is stopped even if
        this is cancelled meanwhile, for instance at a deadline: otherwise its queue would be sent at a later time."""
        ending = asyncio.create_task(self._stop_once(sender))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    async def _stop_once(self, sender: Sender) -> None:
        async with self._connecting:
            if self._sender is not sender:
                return
            self._sender = None
        await sender.stop()

    @property
    def _address(self) -> str:
        return str(self._settings.kafka_bootstrap_servers)

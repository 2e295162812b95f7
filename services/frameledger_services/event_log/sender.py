"""One aiokafka producer: it is started, given records, and stopped within a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka import errors as kafka_errors

from frameledger.record import Outgoing
from frameledger_services import access
from frameledger_services.event_log.broker import BrokerError, no_answer
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.compression import BATCH_BYTES, compress_large_batches
from frameledger_services.event_log.failover import resend_to_new_leaders
from frameledger_services.event_log.log_rate_limit import rate_limited
from frameledger_services.event_log.prepared_client import prepare
from frameledger_services.event_log.produce_protocol import encode_quickly
from frameledger_services.settings import Settings

REQUEST_SECONDS = 10.0
FLUSH_SECONDS = 5.0
ABANDON_SECONDS = 1.0

LARGEST = 32 * 1024 * 1024
"""Bytes of a record before compression; the broker's limit applies to the compressed size."""


class Sender:
    """An idempotent producer with `acks=all` and no linger.

    Once the broker has refused a record or fenced it, it is unusable; see `transient.is_retriable`.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._unanswered: dict[asyncio.Future[Any], Callable[[], None]] = {}

    @classmethod
    async def start(cls, settings: Settings, name: str) -> Self:
        """Returns a connected sender. Raises `BrokerError` if no broker answers."""
        inner = AIOKafkaProducer(
            **access.kafka_options(settings),
            client_id=name,
            enable_idempotence=True,
            acks="all",
            linger_ms=0,
            max_batch_size=BATCH_BYTES,
            # aiokafka compares this with the uncompressed size.
            max_request_size=2 * LARGEST,
            request_timeout_ms=int(REQUEST_SECONDS * 1000),
        )
        compress_large_batches(inner)
        encode_quickly(inner)
        prepare(inner.client)
        resend_to_new_leaders(inner.client)
        try:
            with rate_limited():
                await inner.start()
        except BaseException as error:
            await closed(inner.stop())
            if isinstance(error, kafka_errors.KafkaConnectionError):
                raise BrokerError(no_answer(settings)) from error
            if isinstance(error, kafka_errors.KafkaError):
                raise BrokerError(
                    f"{settings.kafka_bootstrap_servers} does not allow publishing: {error!r}"
                ) from error
            raise
        return cls(inner)

    @property
    def client(self) -> Any:
        """The client of aiokafka, for other requests."""
        return self._inner.client

    async def send(
        self, topic: str, partition: int, record: Outgoing, answered: Callable[[], None]
    ) -> asyncio.Future[Any]:
        """Queue a record after those queued before. Returns a future of aiokafka's `RecordMetadata`.

        `answered` is called once, when the future is done. If this raises, it is not called.
        """
        future: asyncio.Future[Any] = await self._inner.send(
            topic, record.value, key=record.key, partition=partition, headers=list(record.headers)
        )
        self._unanswered[future] = answered
        # One callback for everything: a second one would take the event loop 1 us.
        future.add_done_callback(self._answered)
        return future

    async def stop(self) -> None:
        """Send what is queued, then stop. Records not acknowledged within `FLUSH_SECONDS` fail with
        `ProducerClosed`."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._inner.flush()
                await closed(self._inner.stop())
        except TimeoutError:
            # aiokafka waits for its broker for ever, and has no option for that.
            self._inner._closed = True
            with suppress(TimeoutError):
                async with asyncio.timeout(ABANDON_SECONDS):
                    await closed(self._inner._sender.close())
            try:
                await closed(self._inner.client.close())
            finally:
                for future in [one for one in self._unanswered if not one.done()]:
                    future.set_exception(kafka_errors.ProducerClosed())

    def _answered(self, future: asyncio.Future[Any]) -> None:
        answered = self._unanswered.pop(future)
        # The publisher may have given up; asyncio logs an exception that was never retrieved.
        if not future.cancelled():
            future.exception()
        answered()
